// SwiGLU feed-forward: down(silu(gate(x)) * up(x)), gate and up in one projection.
#pragma once

#include "nn/linear.h"
#include "ops/swiglu.h"

namespace kata {

class Mlp {
 public:
  // hidden -> 2 * width -> hidden; the down projection starts at `residual_deviation`.
  Mlp(Parameters& parameters, const std::string& name, int64_t hidden, int64_t width, double deviation,
      double residual_deviation)
      : width_(width),
        gate_up_(parameters, name + ".gate_up", hidden, 2 * width, deviation),
        down_(parameters, name + ".down", width, hidden, residual_deviation) {}

  // y = residual + mlp(x), all [rows, hidden].
  void forward(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual) {
    gate_up_out_ = ctx.arena.take("mlp gate, up", x.dtype(), {x.dim(0), 2 * width_});
    activated_ = ctx.arena.take("mlp activated", x.dtype(), {x.dim(0), width_});
    gate_up_.forward(ctx, gate_up_out_, x);
    swiglu_forward(ctx, activated_, gate_up_out_);
    down_.forward(ctx, y, activated_, residual);
  }

  // dx = gradient through the mlp alone (the residual's is the caller's).
  void backward(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x) {
    Arena::Scope scope(ctx.arena);
    const Tensor dactivated = ctx.arena.take("mlp activated gradient", x.dtype(), activated_.shape());
    const Tensor dgate_up = ctx.arena.take("mlp gate, up gradient", x.dtype(), gate_up_out_.shape());
    down_.backward(ctx, dactivated, dy, activated_);
    swiglu_backward(ctx, dgate_up, dactivated, gate_up_out_);
    gate_up_.backward(ctx, dx, dgate_up, x);
  }

  int64_t operations() const { return 6 * gate_up_.in() * width_; }  // of a token

 private:
  int64_t width_;
  Linear gate_up_, down_;
  Tensor gate_up_out_, activated_;
};

}  // namespace kata
