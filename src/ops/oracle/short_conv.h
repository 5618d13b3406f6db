// Short causal convolution with SiLU, one output at a time (ops/short_conv.h has the formula).
#pragma once

#include "ops/oracle/scalar.h"

namespace kata::oracle {

// x: [batch, time, channels], weight: [channels, taps]; returns y as x.
template <class S>
std::vector<S> short_conv(const std::vector<S>& x, const std::vector<S>& weight, size_t time,
                          size_t channels) {
  const size_t taps = weight.size() / channels;
  std::vector<S> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i % channels, t = i / channels % time;
    S z = 0;
    for (size_t back = 0; back < taps && back <= t; ++back)
      z += weight[c * taps + taps - 1 - back] * x[i - back * channels];
    y[i] = silu(z);
  }
  return y;
}

}  // namespace kata::oracle
