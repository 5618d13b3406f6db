// Short causal convolution with SiLU, one output at a time (ops/short_conv.h has the formula).
#pragma once

#include <cstdint>

#include "ops/oracle/scalar.h"

namespace kata::oracle {

// What may be left empty.
template <class S>
struct ShortConvExtras {
  std::vector<S> bias;          // [channels]
  std::vector<int32_t> starts;  // [batch, time]
  std::vector<S> window;        // [batch, taps - 1, channels]
};

// x: [batch, time, channels], weight: [channels, taps]; returns y as x.
template <class S>
std::vector<S> short_conv(const std::vector<S>& x, const std::vector<S>& weight, size_t time, size_t channels,
                          const ShortConvExtras<S>& extras = {}) {
  const int64_t taps = int64_t(weight.size() / channels);
  std::vector<S> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i % channels, b = i / channels / time;
    const int64_t t = int64_t(i / channels % time);
    const int64_t start = extras.starts.empty() ? -taps : extras.starts[b * time + size_t(t)];
    S z = extras.bias.empty() ? S(0) : extras.bias[c];
    for (int64_t s = std::max(start, t - taps + 1); s <= t; ++s) {
      const S w = weight[c * size_t(taps) + size_t(s - t + taps - 1)];
      if (s >= 0)
        z += w * x[(b * time + size_t(s)) * channels + c];
      else if (!extras.window.empty())
        z += w * extras.window[(b * size_t(taps - 1) + size_t(taps - 1 + s)) * channels + c];
    }
    y[i] = silu(z);
  }
  return y;
}

}  // namespace kata::oracle
