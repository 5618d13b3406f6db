// Linear attention on the GPU against the CPU in double: a problem as a trial.
#pragma once

#include "ops/linear_attention_support.h"
#include "support/gpu_trial.h"

namespace kata::test {

// Queries and keys share a direction, so that no row is nearly orthogonal to all keys: a normalised read of
// such a row loses digits by its nature (MATH 2).
inline std::vector<double> correlated(const Shape& shape, uint64_t seed) {
  std::vector<double> x = random_normal(count(shape), seed, 0.5);
  for (double& value : x) value += 1;
  return x;
}

inline GpuTrial attention_trial(const LinearProblem& p, const GpuTrial::Tolerance& tolerance) {
  GpuTrial trial(tolerance);
  trial.data("q", p.q_shape()).fill("q", correlated(p.q_shape(), 11));
  trial.data("k", p.k_shape()).fill("k", correlated(p.k_shape(), 12));
  trial.data("v", p.v_shape()).data("d_o", p.o_shape()).result("o", p.o_shape());
  if (p.decays) trial.wide("log", p.decay_shape()).fill("log", random_decays(count(p.decay_shape()), 13));
  if (p.documents) trial.ids("starts", {p.batch, p.tokens}, document_starts(p));
  return trial;
}

// With one token, or parts of one number, a score is a factor of q times one of k: a normalised read does
// not depend on q, nor that of one token on k, and what is left of these gradients is rounding.
inline bool q_cancels(const LinearProblem& p) {
  const MapKind kind = p.map.kind;
  const bool one_group =
      kind == MapKind::psd_sum || kind == MapKind::hermitian || kind == MapKind::quaternionic;
  return p.normalised() && (p.tokens == 1 || (one_group && p.map.part() == 1));
}
inline void add_gradients(GpuTrial& trial, const LinearProblem& p, const GpuTrial::Tolerance& decay) {
  const GpuTrial::Tolerance any{INFINITY, INFINITY};
  trial.result("dq", p.q_shape()).result("dk", p.k_shape()).result("dv", p.v_shape());
  // |h| (1 + tau^2) of lorentz scales a whole score and nearly cancels in a normalised read; rounded outputs
  // do not cancel.
  if (p.map.kind == MapKind::lorentz) trial.tolerance("dq", {2e-5, 6e-2});
  if (q_cancels(p)) trial.tolerance("dq", any);
  if (p.normalised() && p.tokens == 1) trial.tolerance("dk", any);
  if (p.decays) trial.wide_result("dlog", p.decay_shape()).tolerance("dlog", decay);
}
// After a trial with both element types: the values of the last, bf16.
inline void expect_cancelled(const GpuTrial& trial, const LinearProblem& p) {
  if (!q_cancels(p)) return;
  for (const double x : trial.gpu_values("dq")) EXPECT_LT(std::abs(x), 0.1);
}

inline Tensor optional(GpuTrial::Tensors& t, const std::string& name) {
  const auto found = t.find(name);
  return found == t.end() ? Tensor() : found->second;
}
inline Decay decay_of(GpuTrial::Tensors& t) {
  return {optional(t, "log"), optional(t, "starts")};
}

// Tokens [begin, end) of a tensor whose only batch row has `row` elements a token.
inline Tensor token_range(const Tensor& x, int64_t row, int64_t begin, const Shape& shape) {
  if (x.data() == nullptr) return Tensor(nullptr, x.dtype(), shape);
  const auto offset = static_cast<size_t>(begin * row) * size_of(x.dtype());
  return Tensor(static_cast<std::byte*>(x.data()) + offset, x.dtype(), shape);
}

// A piece of a problem of one batch row, from the state of the piece before it.
inline void forward_piece(Context& ctx, GpuTrial::Tensors& t, const LinearProblem& p, const FormChoice& form,
                          int64_t begin, int64_t end) {
  LinearProblem part = p;
  part.tokens = end - begin;
  const int64_t q_row = p.heads * p.map.width, k_row = p.kv_heads * p.map.width;
  const Arena::Scope scope(ctx.arena);
  const Tensor mass =
      p.normalised() ? ctx.arena.take("mass", wide(t["q"].dtype()), part.mass_shape()) : Tensor();
  const Decay decay = {p.decays ? token_range(t["log"], p.kv_heads, begin, part.decay_shape()) : Tensor(),
                       {}};
  linear_attention_forward(ctx, token_range(t["o"], p.heads * p.value_width, begin, part.o_shape()), mass,
                           token_range(t["q"], q_row, begin, part.q_shape()),
                           token_range(t["k"], k_row, begin, part.k_shape()),
                           token_range(t["v"], p.kv_heads * p.value_width, begin, part.v_shape()),
                           settings_of(p, form), begin == 0 ? Tensor() : t["state"], t["state"], decay);
}

}  // namespace kata::test
