// RMSNorm with a learned weight; forward keeps the row scales for backward.
#pragma once

#include "nn/parameters.h"
#include "ops/rmsnorm.h"

namespace kata {

class Norm {
 public:
  static constexpr double eps = 1e-6;

  Norm(Parameters& parameters, const std::string& name, int64_t width)
      : weight_(parameters.add(name + ".weight", {width}, Init::constant(1), false)) {}

  // y, x: [rows, width] or [rows, heads, width]; the row scales live in the caller's arena scope.
  void forward(Context& ctx, const Tensor& y, const Tensor& x) {
    rstd_ = ctx.arena.take("norm scales", wide(x.dtype()), {x.dim(0) * (x.rank() == 3 ? x.dim(1) : 1)});
    rmsnorm_forward(ctx, y, rstd_, x, weight_.value, eps);
  }
  // dx (+)= ...; dx may be dy where their strides agree and nothing is accumulated.
  void backward(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x, bool accumulate) const {
    rmsnorm_backward(ctx, dx, weight_.gradient, dy, x, rstd_, weight_.value, accumulate);
  }

  // For an op that norms and does more; it keeps its own row scales.
  Parameter& weight() const { return weight_; }

 private:
  Parameter& weight_;
  Tensor rstd_;
};

}  // namespace kata
