#include "nn/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace kata {

Sampler::Sampler(const SamplingOptions& options)
    : options_(options), random_(options.seed, stream_sampling) {}

int32_t Sampler::next(const float* logits, int64_t vocab) {
  for (int64_t i = 0; i < vocab; ++i)
    if (!std::isfinite(logits[i]))
      fail(ExitCode::numeric, "the model's logit of token {} is {}; its weights or its input overflow", i,
           logits[i]);
  if (options_.temperature == 0)
    return static_cast<int32_t>(std::max_element(logits, logits + vocab) - logits);

  order_.resize(static_cast<size_t>(vocab));
  std::iota(order_.begin(), order_.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  if (options_.top_k > 0 && options_.top_k < vocab) {
    std::partial_sort(order_.begin(), order_.begin() + options_.top_k, order_.end(), likelier);
    order_.resize(static_cast<size_t>(options_.top_k));
  } else {
    std::sort(order_.begin(), order_.end(), likelier);
  }

  const double top = static_cast<double>(logits[order_[0]]);
  weights_.clear();
  double total = 0;
  for (const int32_t id : order_) {
    weights_.push_back(std::exp((static_cast<double>(logits[id]) - top) / options_.temperature));
    total += weights_.back();
  }
  size_t kept = 0;
  double mass = 0;
  while (kept < weights_.size() && (kept == 0 || mass < options_.top_p * total)) mass += weights_[kept++];

  double target = random_.uniform(draws_++) * mass;
  for (size_t i = 0; i < kept; ++i) {
    target -= weights_[i];
    if (target < 0) return order_[i];
  }
  return order_[kept - 1];
}

}  // namespace kata
