#include "tasks/mqar.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <numeric>

#include "base/arena.h"
#include "base/error.h"
#include "data/batch.h"
#include "tasks/numpy_random.h"

namespace kata {

namespace {

constexpr double power = 0.01;  // a
constexpr int64_t largest_vocab = int64_t{1} << 24;
constexpr int64_t most_entries = int64_t{1} << 30;  // examples times pairs of one set: 12 GiB

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

// Distinct slots by weight, as RandomState.choice(replace=False, p=weights) draws them: as many numbers as
// slots are missing, repeats of one round dropped, taken slots weightless in the next.
class SlotChoice {
 public:
  explicit SlotChoice(int64_t slots)
      : weights_(slot_weights(slots)), first_cdf_(weights_), cdf_(weights_), left_(weights_) {
    fill_cdf(weights_, first_cdf_);
  }

  void draw(NumpyRandom& random, int32_t* out, int64_t count) {
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

 private:
  std::vector<double> weights_, first_cdf_, cdf_, left_;
};

}  // namespace

void check_mqar(const MqarSpec& s) {
  const auto refuse = [&](const char* expected) {
    fail(ExitCode::usage, "mqar: length {}, pairs {}, examples {}, vocab {}: {}", s.length, s.pairs,
         s.examples, s.vocab, expected);
  };
  if (s.examples < 1) refuse("expected at least 1 example");
  if (s.pairs < 1) refuse("expected at least 1 pair");
  if (s.length % 2 != 0) refuse("the length must be even");
  if (s.pairs > s.length / 4)
    refuse("4 * pairs must not exceed the length; lengthen the rows or ask for fewer pairs");
  if (s.vocab > largest_vocab) refuse("expected a vocabulary of at most 16777216");
  if (s.vocab <= s.length) refuse("the vocabulary must be larger than the length");
  if (s.pairs > s.vocab / 2 - 1) refuse("there are only vocab / 2 - 1 keys; ask for fewer pairs");
  if (s.examples > most_entries / s.pairs) refuse("examples * pairs must not exceed 1073741824");
}

MqarData::MqarData(const MqarSpec& spec) : spec_(spec) {
  check_mqar(spec);
  const int64_t m = spec.pairs;
  const auto entries = static_cast<size_t>(spec.examples * m);
  try {
    for (auto* column : {&keys_, &values_, &slots_}) column->resize(entries);
  } catch (const std::bad_alloc&) {
    fail(ExitCode::device, "mqar: no memory for {} examples of {} pairs ({}); ask for fewer", spec.examples,
         m, human_bytes(3 * entries * sizeof(int32_t)));
  }

  NumpyRandom random(spec.seed);
  // The first m of a random order of the ids begin .. end - 1, for every row.
  const auto draw_ids = [&](std::vector<int32_t>& out, int64_t begin, int64_t end) {
    const auto size = static_cast<uint32_t>(end - begin);
    std::vector<uint32_t> order(size);
    for (int64_t row = 0; row < spec.examples; ++row) {
      std::iota(order.begin(), order.end(), static_cast<uint32_t>(begin));
      random.shuffle(order.data(), size, static_cast<uint32_t>(m));
      std::copy(order.begin(), order.begin() + m, out.begin() + row * m);
    }
  };
  draw_ids(keys_, 1, spec.vocab / 2);
  draw_ids(values_, spec.vocab / 2, spec.vocab);

  SlotChoice choice((spec.length - 2 * m) / 2);
  for (int64_t row = 0; row < spec.examples; ++row) choice.draw(random, slots_.data() + row * m, m);
}

void MqarData::render(int64_t row, int32_t* inputs, int32_t* targets) const {
  KATA_CHECK(row >= 0 && row < spec_.examples, "row {} of {}", row, spec_.examples);
  std::fill_n(inputs, spec_.length, 0);
  std::fill_n(targets, spec_.length, kNoTarget);
  const int64_t m = spec_.pairs;
  for (int64_t p = 0; p < m; ++p) {
    const auto at = static_cast<size_t>(row * m + p);
    inputs[2 * p] = keys_[at];
    inputs[2 * p + 1] = values_[at];
    const int64_t query = 2 * m + 2 * int64_t{slots_[at]};
    inputs[query] = keys_[at];
    targets[query] = values_[at];
  }
}

SegmentSeeds segment_seeds(uint32_t seed, int64_t train, int64_t test) {
  NumpyRandom random(seed);
  SegmentSeeds seeds;
  for (int64_t i = 0; i < train; ++i) seeds.train.push_back(random.next() & 0x7fffffffu);
  for (int64_t i = 0; i < test; ++i) seeds.test.push_back((random.next() & 0x7fffffffu) | 0x80000000u);
  return seeds;
}

}  // namespace kata
