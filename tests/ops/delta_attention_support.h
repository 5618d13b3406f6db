// One problem of the delta rule, run through any form in any precision, for the tests of that op.
#pragma once

#include "ops/delta_attention.h"
#include "ops/linear_attention_support.h"
#include "ops/oracle/unit_feature.h"

namespace kata::test {

// A LinearProblem with a raw read says all there is to say about sizes, decay and documents.
inline LinearProblem delta_problem(const FeatureMap& map, int64_t batch, int64_t tokens, int64_t heads,
                                   int64_t kv_heads, int64_t value_width) {
  return {map, Read::raw, batch, tokens, heads, kv_heads, value_width};
}
inline DeltaAttention delta_settings(const LinearProblem& p, const FormChoice& f) {
  return {p.map, f.form, f.chunk};
}
inline Shape beta_shape(const LinearProblem& p) {
  return p.decay_shape();
}
inline Shape errors_shape(const LinearProblem& p) {
  return {p.batch, p.tokens, p.kv_heads, p.value_width};
}
inline Shape delta_state_shape(const LinearProblem& p) {
  return kata::state_shape(unit_map(p.map), Read::raw, p.size());
}

template <class T>
struct DeltaInputs {
  std::vector<T> q, k, v, d_o, beta, log_decay = {};
};

template <class T>
struct DeltaOutputs {
  std::vector<T> o, errors, state, dq, dk, dv, dbeta, dlog_decay = {};
};
template <class T>
auto values_of(DeltaOutputs<T>& r) {
  return std::array{std::pair{"o", &r.o}, std::pair{"errors", &r.errors}, std::pair{"state", &r.state}};
}
template <class T>
auto gradients_of(DeltaOutputs<T>& r) {
  return std::array{std::pair{"dq", &r.dq}, std::pair{"dk", &r.dk}, std::pair{"dv", &r.dv},
                    std::pair{"dbeta", &r.dbeta}, std::pair{"dlog_decay", &r.dlog_decay}};
}

// In (0, 1), with exact zeros and ones among them.
inline std::vector<double> random_betas(size_t n, uint64_t seed) {
  std::vector<double> x = random_normal(n, seed);
  for (size_t i = 0; i < n; ++i) x[i] = i % 7 == 3 ? 0 : i % 5 == 2 ? 1 : 1 / (1 + std::exp(-2 * x[i]));
  return x;
}

// Rows whose feature has length one, as the unit_feature op leaves them.
inline std::vector<double> unit_rows(const FeatureMap& map, const std::vector<double>& x) {
  return oracle::unit_feature<double>(map, x, 1);
}

inline DeltaInputs<double> random_delta_inputs(const LinearProblem& p, uint64_t seed) {
  return {unit_rows(p.map, random_normal(count(p.q_shape()), seed)),
          unit_rows(p.map, random_normal(count(p.k_shape()), seed + 1)),
          random_normal(count(p.v_shape()), seed + 2),
          random_normal(count(p.o_shape()), seed + 3),
          random_betas(count(beta_shape(p)), seed + 5),
          random_decays(p.decays ? count(p.decay_shape()) : 0, seed + 4)};
}

template <class To, class From>
DeltaInputs<To> cast(const DeltaInputs<From>& x) {
  return {cast<To>(x.q),   cast<To>(x.k),    cast<To>(x.v),
          cast<To>(x.d_o), cast<To>(x.beta), cast<To>(x.log_decay)};
}

template <class T>
DeltaOutputs<T> run_delta(const LinearProblem& p, const FormChoice& form, DeltaInputs<T> in,
                          const RunOptions& options = {}) {
  const Threads threads(options.threads);
  const auto nan = [](const Shape& shape) { return std::vector<T>(count(shape), T(NAN)); };
  DeltaOutputs<T> r = {nan(p.o_shape()), nan(errors_shape(p)), nan(delta_state_shape(p)), nan(p.q_shape()),
                       nan(p.k_shape()), nan(p.v_shape()),     nan(beta_shape(p))};
  if (p.decays) r.dlog_decay = nan(p.decay_shape());
  std::vector<int32_t> starts = document_starts(p);
  run_op([&](Context& ctx) {
    const Decay decay = decay_tensors(in.log_decay, starts, p);
    const Tensor q = tensor(in.q, p.q_shape()), k = tensor(in.k, p.k_shape()), v = tensor(in.v, p.v_shape());
    const Tensor errors = tensor(r.errors, errors_shape(p)), beta = tensor(in.beta, beta_shape(p));
    delta_attention_forward(ctx, tensor(r.o, p.o_shape()), errors, q, k, v, beta, delta_settings(p, form), {},
                            tensor(r.state, delta_state_shape(p)), decay);
    if (!options.backward) return;
    delta_attention_backward(ctx, tensor(r.dq, p.q_shape()), tensor(r.dk, p.k_shape()),
                             tensor(r.dv, p.v_shape()), tensor(r.dbeta, beta_shape(p)),
                             tensor(in.d_o, p.o_shape()), q, k, v, beta, errors, delta_settings(p, form),
                             decay, p.decays ? tensor(r.dlog_decay, p.decay_shape()) : Tensor());
  });
  return r;
}

// Tokens [begin, end) of x [B, T, ..], contiguous.
template <class T>
std::vector<T> cut_tokens(const LinearProblem& p, const std::vector<T>& x, int64_t begin, int64_t end) {
  std::vector<T> part;
  const int64_t row = static_cast<int64_t>(x.size()) / p.batch, token = row / p.tokens;
  for (int64_t b = 0; b < p.batch; ++b)
    part.insert(part.end(), x.begin() + b * row + begin * token, x.begin() + b * row + end * token);
  return part;
}
template <class T>
DeltaInputs<T> cut_tokens(const LinearProblem& p, const DeltaInputs<T>& x, int64_t begin, int64_t end) {
  const auto cut = [&](const std::vector<T>& part) { return cut_tokens(p, part, begin, end); };
  return {cut(x.q), cut(x.k), cut(x.v), cut(x.d_o), cut(x.beta), cut(x.log_decay)};
}
// The inverse: writes `part` back as tokens [begin, ..) of x.
template <class T>
void paste_tokens(const LinearProblem& p, std::vector<T>& x, const std::vector<T>& part, int64_t begin) {
  const int64_t row = static_cast<int64_t>(x.size()) / p.batch, token = row / p.tokens;
  const int64_t n = static_cast<int64_t>(part.size()) / p.batch;
  for (int64_t b = 0; b < p.batch; ++b)
    std::copy_n(part.begin() + b * n, n, x.begin() + b * row + begin * token);
}

// A sequence in pieces, each in its own form and continuing the state of the one before (in place).
template <class T>
DeltaOutputs<T> run_delta_pieces(const LinearProblem& p, const std::vector<Piece>& pieces,
                                 const DeltaInputs<T>& all) {
  const Threads threads(1);
  DeltaOutputs<T> r;
  r.o.assign(count(p.o_shape()), T(NAN));
  r.errors.assign(count(errors_shape(p)), T(NAN));
  r.state.assign(count(delta_state_shape(p)), T(NAN));
  for (const Piece& piece : pieces) {
    LinearProblem part = p;
    part.tokens = piece.end - piece.begin;
    DeltaInputs<T> in = cut_tokens(p, all, piece.begin, piece.end);
    std::vector<int32_t> starts;
    if (p.documents) starts = cut_tokens(p, document_starts(p), piece.begin, piece.end);
    for (int32_t& start : starts) start -= static_cast<int32_t>(piece.begin);
    std::vector<T> o(count(part.o_shape()), T(NAN)), errors(count(errors_shape(part)), T(NAN));
    const Tensor state = tensor(r.state, delta_state_shape(p));
    run_op([&](Context& ctx) {
      delta_attention_forward(ctx, tensor(o, part.o_shape()), tensor(errors, errors_shape(part)),
                              tensor(in.q, part.q_shape()), tensor(in.k, part.k_shape()),
                              tensor(in.v, part.v_shape()), tensor(in.beta, beta_shape(part)),
                              delta_settings(p, piece.form), piece.begin == 0 ? Tensor() : state, state,
                              decay_tensors(in.log_decay, starts, part));
    });
    paste_tokens(p, r.o, o, piece.begin);
    paste_tokens(p, r.errors, errors, piece.begin);
  }
  return r;
}

// Tokens [begin, T) one at a time through the step, from the given state; p is not in documents.
template <class T>
DeltaOutputs<T> run_delta_steps(const LinearProblem& p, const DeltaInputs<T>& all, std::vector<T> state,
                                int64_t begin, int thread_number = 1) {
  const Threads threads(thread_number);
  DeltaOutputs<T> r;
  r.o.assign(count(p.o_shape()), T(NAN));
  for (int64_t t = begin; t < p.tokens; ++t) {
    DeltaInputs<T> in = cut_tokens(p, all, t, t + 1);
    std::vector<T> o(in.d_o.size(), T(NAN));
    const Shape gate{p.batch, p.kv_heads};
    run_op([&](Context& ctx) {
      delta_attention_step(
          ctx, tensor(o, {p.batch, p.heads, p.value_width}), tensor(in.q, {p.batch, p.heads, p.map.width}),
          tensor(in.k, {p.batch, p.kv_heads, p.map.width}),
          tensor(in.v, {p.batch, p.kv_heads, p.value_width}), tensor(in.beta, gate),
          tensor(state, delta_state_shape(p)), p.map, p.decays ? tensor(in.log_decay, gate) : Tensor());
    });
    paste_tokens(p, r.o, o, t);
  }
  r.state = state;
  return r;
}

template <class S>
oracle::RecurrenceResult<S> run_delta_oracle(const LinearProblem& p, const std::vector<S>& q,
                                             const std::vector<S>& k, const std::vector<S>& v,
                                             const std::vector<S>& beta, const std::vector<S>& log_decay) {
  return oracle::recurrence<S>(unit_map(p.map), Read::raw, p.size(), q, k, v, {},
                               {log_decay, beta, document_starts(p)});
}
inline DeltaOutputs<double> delta_oracle(const LinearProblem& p, const DeltaInputs<double>& in) {
  const auto r = run_delta_oracle<double>(p, in.q, in.k, in.v, in.beta, in.log_decay);
  return {r.o, r.errors, r.state, {}, {}, {}, {}};
}

// The gradients of <o, d_o> by the complex step of the oracle.
inline DeltaOutputs<double> delta_oracle_gradients(const LinearProblem& p, const DeltaInputs<double>& in) {
  const auto f = [&](const ComplexInputs& x) {
    return weighted_sum(run_delta_oracle(p, x[0], x[1], x[2], x[3], x[4]).o, in.d_o);
  };
  const std::vector<std::vector<double>> inputs = {in.q, in.k, in.v, in.beta, in.log_decay};
  return {{},
          {},
          {},
          complex_step(f, inputs, 0),
          complex_step(f, inputs, 1),
          complex_step(f, inputs, 2),
          complex_step(f, inputs, 3),
          complex_step(f, inputs, 4)};
}

template <class A, class B>
void expect_values(A r, B expected, double tolerance) {
  for (size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(close(*values_of(r)[i].second, *values_of(expected)[i].second, tolerance))
        << values_of(r)[i].first;
}
// near, not close: some gradients are 0 in exact arithmetic.
inline void expect_gradients(DeltaOutputs<double> r, DeltaOutputs<double> expected, double tolerance) {
  for (size_t i = 0; i < 5; ++i)
    EXPECT_TRUE(near(*gradients_of(r)[i].second, *gradients_of(expected)[i].second, tolerance))
        << gradients_of(r)[i].first;
}
template <class T>
void expect_all_equal(DeltaOutputs<T> a, DeltaOutputs<T> b) {
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(*values_of(a)[i].second, *values_of(b)[i].second) << values_of(a)[i].first;
  for (size_t i = 0; i < 5; ++i)
    EXPECT_EQ(*gradients_of(a)[i].second, *gradients_of(b)[i].second) << gradients_of(a)[i].first;
}

// Every map of the delta rule, at an even width and, where it may be, an odd one.
inline std::vector<FeatureMap> delta_maps(int64_t even, int64_t odd) {
  return {{MapKind::identity, odd, 1},
          {MapKind::orthant, odd, 1},
          {MapKind::lorentz, even, 1},
          psd(odd, 1),
          psd(even, 2),
          psd(8, 4),
          psd_sum(even, 2),
          psd_sum(8, 4),
          {MapKind::hermitian, even, 1},
          {MapKind::quaternionic, 8, 1},
          {MapKind::quaternionic, 4, 1}};
}

}  // namespace kata::test
