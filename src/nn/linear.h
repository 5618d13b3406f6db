// A bias-free projection: y = x w^T, w [out, in].
#pragma once

#include "nn/parameters.h"
#include "ops/matmul.h"

namespace kata {

class Linear {
 public:
  Linear(Parameters& parameters, const std::string& name, int64_t in, int64_t out, double deviation)
      : weight_(parameters.add(name + ".weight", {out, in}, Init::normal(deviation), true)) {}

  // y [rows, out] = x [rows, in] w^T (+ residual [rows, out])
  void forward(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual = {}) const {
    matmul_forward(ctx, y, x, weight_.value, residual);
  }
  // dx = dy w, or += where asked to; the weight's gradient is added to.
  void backward(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x,
                bool accumulate = false) const {
    matmul_backward_input(ctx, dx, dy, weight_.value, accumulate);
    matmul_backward_weight(ctx, weight_.gradient, dy, x);
  }

  int64_t in() const { return weight_.shape[1]; }
  int64_t out() const { return weight_.shape[0]; }

 private:
  Parameter& weight_;
};

}  // namespace kata
