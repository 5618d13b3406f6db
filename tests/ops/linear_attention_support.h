// One problem of linear attention, run through any form in any precision, for the tests of that op.
#pragma once

#include "ops/linear_attention.h"
#include "ops/oracle/recurrence.h"
#include "support/compare.h"
#include "support/gradient.h"
#include "support/op_runner.h"

namespace kata::test {

struct LinearProblem {
  FeatureMap map;
  Read read;
  int64_t batch, tokens, heads, kv_heads, value_width;
  double scale = 1;

  AttentionSize size() const { return {batch, tokens, heads, kv_heads, map.width, value_width}; }
  bool normalised() const { return read == Read::normalised; }
  Shape q_shape() const { return {batch, tokens, heads, map.width}; }
  Shape k_shape() const { return {batch, tokens, kv_heads, map.width}; }
  Shape v_shape() const { return {batch, tokens, kv_heads, value_width}; }
  Shape o_shape() const { return {batch, tokens, heads, value_width}; }
  Shape mass_shape() const { return {batch, tokens, heads}; }
};

inline std::string name_of(MapKind kind) {
  switch (kind) {
    case MapKind::identity:
      return "identity";
    case MapKind::orthant:
      return "orthant";
    case MapKind::lorentz:
      return "lorentz";
    case MapKind::psd:
      return "psd";
    case MapKind::psd_sum:
      return "psd_sum";
  }
  return "?";
}

// What gtest prints of a parameter: readable, and the same in every run.
inline void PrintTo(const LinearProblem& p, std::ostream* out) {
  *out << name_of(p.map.kind) << " d " << p.map.width << " M " << p.map.groups
       << (p.normalised() ? " normalised" : " raw") << " B " << p.batch << " T " << p.tokens << " H "
       << p.heads << "/" << p.kv_heads << " dv " << p.value_width << " scale " << p.scale;
}

// A form and its chunk.
struct FormChoice {
  Form form;
  int64_t chunk = 64;
};
inline const FormChoice quadratic_form{Form::quadratic}, recurrent_form{Form::recurrent};
inline FormChoice chunked_form(int64_t chunk) {
  return {Form::chunked, chunk};
}
inline std::string name_of(const FormChoice& f) {
  return f.form == Form::quadratic   ? "quadratic"
         : f.form == Form::recurrent ? "recurrent"
                                     : "chunks of " + std::to_string(f.chunk);
}
inline LinearAttention settings_of(const LinearProblem& p, const FormChoice& f) {
  return {p.map, p.read, f.form, f.chunk};
}

template <class T>
struct LinearInputs {
  std::vector<T> q, k, v, d_o;
};

inline size_t count(const Shape& shape) {
  return static_cast<size_t>(shape.numel());
}

inline LinearInputs<double> random_inputs(const LinearProblem& p, uint64_t seed) {
  return {random_normal(count(p.q_shape()), seed, p.scale),
          random_normal(count(p.k_shape()), seed + 1, p.scale), random_normal(count(p.v_shape()), seed + 2),
          random_normal(count(p.o_shape()), seed + 3)};
}

template <class To, class From>
LinearInputs<To> cast(const LinearInputs<From>& x) {
  return {cast<To>(x.q), cast<To>(x.k), cast<To>(x.v), cast<To>(x.d_o)};
}

template <class T>
struct LinearOutputs {
  std::vector<T> o, mass, dq, dk, dv;
};

template <class T>
void allocate(LinearOutputs<T>& r, const LinearProblem& p) {
  r.o.assign(count(p.o_shape()), T(NAN));
  r.mass.assign(p.normalised() ? count(p.mass_shape()) : 0, T(NAN));
  r.dq.assign(count(p.q_shape()), T(NAN));
  r.dk.assign(count(p.k_shape()), T(NAN));
  r.dv.assign(count(p.v_shape()), T(NAN));
}

template <class T>
Tensor mass_tensor(std::vector<T>& mass, const LinearProblem& p) {
  return p.normalised() ? tensor(mass, p.mass_shape()) : Tensor();
}

template <class T>
LinearOutputs<T> run_form(const LinearProblem& p, const FormChoice& form, LinearInputs<T> in,
                          bool backward = true) {
  LinearOutputs<T> r;
  allocate(r, p);
  run_op([&](Context& ctx) {
    const Tensor q = tensor(in.q, p.q_shape()), k = tensor(in.k, p.k_shape()), v = tensor(in.v, p.v_shape());
    const Tensor o = tensor(r.o, p.o_shape()), mass = mass_tensor(r.mass, p);
    linear_attention_forward(ctx, o, mass, q, k, v, settings_of(p, form));
    if (!backward) return;
    linear_attention_backward(ctx, tensor(r.dq, p.q_shape()), tensor(r.dk, p.k_shape()),
                              tensor(r.dv, p.v_shape()), tensor(in.d_o, p.o_shape()), q, k, v, o, mass,
                              settings_of(p, form));
  });
  return r;
}

template <class S>
oracle::RecurrenceResult<S> run_oracle(const LinearProblem& p, const std::vector<S>& q,
                                       const std::vector<S>& k, const std::vector<S>& v) {
  return oracle::recurrence<S>(p.map, p.read, p.size(), q, k, v);
}

// The gradients of <o, d_o> by the complex step of the oracle.
inline LinearOutputs<double> oracle_gradients(const LinearProblem& p, const LinearInputs<double>& in) {
  const auto f = [&](const ComplexInputs& x) {
    return weighted_sum(run_oracle(p, x[0], x[1], x[2]).o, in.d_o);
  };
  const std::vector<std::vector<double>> inputs = {in.q, in.k, in.v};
  return {{}, {}, complex_step(f, inputs, 0), complex_step(f, inputs, 1), complex_step(f, inputs, 2)};
}

// |a - b| <= tolerance (|b| + 1): for gradients of inputs of size 1, some of which are 0 in exact arithmetic
// (one token, or a score that splits into a factor of q and one of k).
inline ::testing::AssertionResult near(const std::vector<double>& a, const std::vector<double>& b,
                                       double tolerance) {
  std::vector<double> shifted = a, one = b;
  shifted.push_back(1);
  one.push_back(1);
  return close(shifted, one, tolerance);
}

inline FeatureMap psd(int64_t width, int64_t groups) {
  return {MapKind::psd, width, groups};
}
inline FeatureMap psd_sum(int64_t width, int64_t groups) {
  return {MapKind::psd_sum, width, groups};
}

// Every map with the reads that it is used with, at an even width and, where it may be, an odd one.
inline std::vector<std::pair<FeatureMap, Read>> maps_and_reads(int64_t even, int64_t odd) {
  const Read n = Read::normalised, r = Read::raw;
  return {{{MapKind::identity, odd, 1}, r},
          {{MapKind::orthant, odd, 1}, n},
          {{MapKind::orthant, even, 1}, r},
          {{MapKind::lorentz, odd, 1}, n},
          {{MapKind::lorentz, even, 1}, n},
          {psd(odd, 1), n},
          {psd(even, 2), n},
          {psd(even, even), n},
          {psd(even, 2), r},
          {psd_sum(even, 1), n},
          {psd_sum(even, 2), n},
          {psd_sum(even, even), n}};
}

}  // namespace kata::test
