// The delta rule on the GPU against the CPU in double: a problem as a trial.
#pragma once

#include "kernels/chunk_trial.h"
#include "ops/delta_attention_support.h"

namespace kata::test {

// Of results that are sums in float, from inputs that both sides share: o is rounded to bf16 once, while
// errors, states and the gradients of gates are not.
inline constexpr GpuTrial::Tolerance delta_values{5e-6, 3e-3}, delta_wide{5e-6, 5e-6};
inline constexpr GpuTrial::Tolerance delta_gradients{2e-5, 3e-3}, delta_wide_gradients{2e-5, 2e-5};

// Where the tensor cores take what is not bf16 by its nature as the sum of two bf16 numbers: about 16 bits of
// a fraction a factor, so far better than bf16 and not quite fp32.
inline bool delta_splits(const LinearProblem& p) {
  return p.map.width == 64 && p.value_width == 64;
}
inline GpuTrial::Tolerance delta_wide_of(const LinearProblem& p) {
  return {delta_wide.fp32, delta_splits(p) ? 4e-5 : delta_wide.bf16};
}
inline GpuTrial::Tolerance delta_wide_gradients_of(const LinearProblem& p) {
  return {delta_wide_gradients.fp32, delta_splits(p) ? 2e-4 : delta_wide_gradients.bf16};
}

inline GpuTrial delta_trial(const LinearProblem& p) {
  const DeltaInputs<double> in = random_delta_inputs(p, 21);
  GpuTrial trial(delta_values);
  trial.data("q", p.q_shape()).fill("q", in.q).data("k", p.k_shape()).fill("k", in.k);
  trial.data("v", p.v_shape()).data("d_o", p.o_shape()).result("o", p.o_shape());
  trial.wide("beta", beta_shape(p)).fill("beta", in.beta);
  trial.wide_result("errors", errors_shape(p)).tolerance("errors", delta_wide_of(p));
  if (p.decays) trial.wide("log", p.decay_shape()).fill("log", in.log_decay);
  if (p.documents) trial.ids("starts", {p.batch, p.tokens}, document_starts(p));
  return trial;
}
inline void add_delta_state(GpuTrial& trial, const LinearProblem& p) {
  trial.wide_result("state", delta_state_shape(p)).tolerance("state", delta_wide_of(p));
}
inline void add_delta_gradients(GpuTrial& trial, const LinearProblem& p) {
  for (const char* name : {"dq", "dk", "dv"}) {
    trial.result(name, name[1] == 'q' ? p.q_shape() : name[1] == 'k' ? p.k_shape() : p.v_shape());
    trial.tolerance(name, delta_gradients);
  }
  trial.wide_result("dbeta", beta_shape(p)).tolerance("dbeta", delta_wide_gradients_of(p));
  if (p.decays) trial.wide_result("dlog", p.decay_shape()).tolerance("dlog", delta_wide_gradients_of(p));
}

// All tokens of a trial, from the empty state.
inline void delta_forward(Context& ctx, GpuTrial::Tensors& t, const LinearProblem& p,
                          const FormChoice& form) {
  delta_attention_forward(ctx, t["o"], t["errors"], t["q"], t["k"], t["v"], t["beta"],
                          delta_settings(p, form), {}, optional(t, "state"), decay_of(t));
}
inline void delta_both_passes(Context& ctx, GpuTrial::Tensors& t, const LinearProblem& p,
                              const FormChoice& form) {
  delta_forward(ctx, t, p, form);
  delta_attention_backward(ctx, t["dq"], t["dk"], t["dv"], t["dbeta"], t["d_o"], t["q"], t["k"], t["v"],
                           t["beta"], t["errors"], delta_settings(p, form), decay_of(t), optional(t, "dlog"));
}
inline void run_delta_trial(GpuTrial& trial, const LinearProblem& p, const FormChoice& form) {
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) { delta_both_passes(ctx, t, p, form); });
}
inline void run_delta_trial(const LinearProblem& p, const FormChoice& form) {
  GpuTrial trial = delta_trial(p);
  add_delta_state(trial, p);
  add_delta_gradients(trial, p);
  run_delta_trial(trial, p, form);
}

// A piece of a problem of one batch row without documents, from the state of the piece before it.
inline void delta_piece(Context& ctx, GpuTrial::Tensors& t, const LinearProblem& p, const FormChoice& form,
                        int64_t begin, int64_t end) {
  LinearProblem part = p;
  part.tokens = end - begin;
  const auto range = [&](const char* name, int64_t row, const Shape& shape) {
    return token_range(t[name], row, begin, shape);
  };
  const int64_t d = p.map.width, dv = p.value_width;
  const Decay decay = {p.decays ? range("log", p.kv_heads, part.decay_shape()) : Tensor(), {}};
  delta_attention_forward(
      ctx, range("o", p.heads * dv, part.o_shape()), range("errors", p.kv_heads * dv, errors_shape(part)),
      range("q", p.heads * d, part.q_shape()), range("k", p.kv_heads * d, part.k_shape()),
      range("v", p.kv_heads * dv, part.v_shape()), range("beta", p.kv_heads, beta_shape(part)),
      delta_settings(p, form), begin == 0 ? Tensor() : t["state"], t["state"], decay);
}

}  // namespace kata::test
