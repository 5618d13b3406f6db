// RMSNorm with a learned weight; forward keeps the row scales for backward.
#pragma once

#include "nn/parameters.h"
#include "ops/rmsnorm.h"

namespace kata {

class Norm {
 public:
  // eps is added to the mean square of a row.
  Norm(Parameters& parameters, const std::string& name, int64_t width, double eps)
      : weight_(parameters.add(name + ".weight", {width}, Init::constant(1), false)), eps_(eps) {}

  // y, x: [rows, width] or [rows, heads, width]; the row scales live in the caller's arena scope.
  void forward(Context& ctx, const Tensor& y, const Tensor& x) {
    rstd_ = ctx.arena.take("norm scales", wide(x.dtype()), {x.dim(0) * (x.rank() == 3 ? x.dim(1) : 1)});
    rmsnorm_forward(ctx, y, rstd_, x, weight_.value, eps_);
  }
  // dx (+)= ...; dx may be dy where their strides agree and nothing is accumulated.
  void backward(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x, bool accumulate) const {
    rmsnorm_backward(ctx, dx, weight_.gradient, dy, x, rstd_, weight_.value, accumulate);
  }

  // For an op that norms and does more; it keeps its own row scales.
  Parameter& weight() const { return weight_; }
  double eps() const { return eps_; }

 private:
  Parameter& weight_;
  double eps_;
  Tensor rstd_;
};

}  // namespace kata
