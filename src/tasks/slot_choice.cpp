#include "tasks/slot_choice.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kata {

namespace {

constexpr double power = 0.01;  // a

// NumPy's order of summation: eight interleaved sums in blocks of at most 128, larger ranges split in two at
// a multiple of eight.
double pairwise_sum(const double* x, int64_t n) {
  if (n < 8) return std::accumulate(x, x + n, 0.0);
  if (n > 128) {
    const int64_t half = n / 2 / 8 * 8;
    return pairwise_sum(x, half) + pairwise_sum(x + half, n - half);
  }
  double r[8];
  std::copy(x, x + 8, r);
  int64_t i = 8;
  for (; i < n - n % 8; i += 8)
    for (int j = 0; j < 8; ++j) r[j] += x[i + j];
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < n; ++i) sum += x[i];
  return sum;
}

std::vector<double> slot_weights(int64_t slots) {
  std::vector<double> weights(static_cast<size_t>(slots));
  for (int64_t i = 0; i < slots; ++i)
    weights[static_cast<size_t>(i)] = power * std::pow(static_cast<double>(i + 1), power - 1);
  const double total = pairwise_sum(weights.data(), slots);
  for (double& w : weights) w /= total;
  return weights;
}

// Running sums of the weights that are not taken yet, ending in 1.
void fill_cdf(const std::vector<double>& weights, std::vector<double>& cdf) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) cdf[i] = sum += weights[i];
  for (double& c : cdf) c /= sum;
}

}  // namespace

SlotChoice::SlotChoice(int64_t slots)
    : weights_(slot_weights(slots)), first_cdf_(weights_), cdf_(weights_), left_(weights_) {
  fill_cdf(weights_, first_cdf_);
}

void SlotChoice::draw(NumpyRandom& random, int32_t* out, int64_t count) {
  left_ = weights_;
  const std::vector<double>* cdf = &first_cdf_;
  for (int64_t found = 0; found < count;) {
    if (found > 0) {
      fill_cdf(left_, cdf_);
      cdf = &cdf_;
    }
    // All numbers of a round are drawn before its repeats are dropped.
    const int64_t missing = count - found;
    for (int64_t i = 0; i < missing; ++i) {
      const auto slot = std::upper_bound(cdf->begin(), cdf->end(), random.uniform()) - cdf->begin();
      double& weight = left_[static_cast<size_t>(slot)];
      if (weight == 0) continue;
      weight = 0;
      out[found++] = static_cast<int32_t>(slot);
    }
  }
}

void draw_ids(NumpyRandom& random, int64_t begin, int64_t end, int64_t rows, int64_t count,
              std::vector<int32_t>& out) {
  const auto size = static_cast<uint32_t>(end - begin);
  std::vector<uint32_t> order(size);
  for (int64_t row = 0; row < rows; ++row) {
    std::iota(order.begin(), order.end(), static_cast<uint32_t>(begin));
    random.shuffle(order.data(), size, static_cast<uint32_t>(count));
    std::copy(order.begin(), order.begin() + count, out.begin() + row * count);
  }
}

}  // namespace kata
