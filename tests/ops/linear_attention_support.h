// One problem of linear attention, run through any form in any precision, for the tests of that op.
#pragma once

#include "base/parallel.h"
#include "ops/linear_attention.h"
#include "ops/oracle/recurrence.h"
#include "support/compare.h"
#include "support/gradient.h"
#include "support/op_runner.h"

namespace kata {

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
    case MapKind::hermitian:
      return "hermitian";
    case MapKind::quaternionic:
      return "quaternionic";
  }
  return "?";
}

// What gtest prints of a parameter: readable, and the same in every run.
inline void PrintTo(const FeatureMap& map, std::ostream* out) {
  *out << name_of(map.kind) << " d " << map.width << " M " << map.groups;
}
inline void PrintTo(Read read, std::ostream* out) {
  *out << (read == Read::raw ? "raw" : "normalised");
}

}  // namespace kata

namespace kata::test {

struct LinearProblem {
  FeatureMap map;
  Read read;
  int64_t batch, tokens, heads, kv_heads, value_width;
  double scale = 1;
  bool decays = false, documents = false;

  AttentionSize size() const { return {batch, tokens, heads, kv_heads, map.width, value_width}; }
  bool normalised() const { return read == Read::normalised; }
  Shape q_shape() const { return {batch, tokens, heads, map.width}; }
  Shape k_shape() const { return {batch, tokens, kv_heads, map.width}; }
  Shape v_shape() const { return {batch, tokens, kv_heads, value_width}; }
  Shape o_shape() const { return {batch, tokens, heads, value_width}; }
  Shape mass_shape() const { return {batch, tokens, heads}; }
  Shape decay_shape() const { return {batch, tokens, kv_heads}; }
};

inline void PrintTo(const LinearProblem& p, std::ostream* out) {
  PrintTo(p.map, out);
  *out << (p.normalised() ? " normalised" : " raw") << " B " << p.batch << " T " << p.tokens << " H "
       << p.heads << "/" << p.kv_heads << " dv " << p.value_width << " scale " << p.scale
       << (p.decays ? " decaying" : "") << (p.documents ? " in documents" : "");
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
  std::vector<T> q, k, v, d_o, log_decay = {};
};

inline size_t count(const Shape& shape) {
  return static_cast<size_t>(shape.numel());
}

// Documents of one token, a few, and up to 40, cut differently in each row.
inline std::vector<int32_t> document_starts(const LinearProblem& p) {
  std::vector<int32_t> starts;
  if (!p.documents) return starts;
  for (int64_t b = 0; b < p.batch; ++b) {
    int64_t start = 0, length = 2;
    for (int64_t t = 0; t < p.tokens; ++t) {
      if (t == start + length) {
        start = t;
        length = 1 + (7 * b + 5 * t + length) % (t % 3 == 0 ? 40 : 3);
      }
      starts.push_back(static_cast<int32_t>(start));
    }
  }
  return starts;
}

// From hardly any decay to a factor of e^-3.
inline std::vector<double> random_decays(size_t n, uint64_t seed) {
  std::vector<double> x = random_normal(n, seed);
  for (double& value : x) value = -std::exp(1.5 * value - 2);
  return x;
}

inline LinearInputs<double> random_inputs(const LinearProblem& p, uint64_t seed) {
  return {random_normal(count(p.q_shape()), seed, p.scale),
          random_normal(count(p.k_shape()), seed + 1, p.scale), random_normal(count(p.v_shape()), seed + 2),
          random_normal(count(p.o_shape()), seed + 3),
          random_decays(p.decays ? count(p.decay_shape()) : 0, seed + 4)};
}

template <class To, class From>
LinearInputs<To> cast(const LinearInputs<From>& x) {
  return {cast<To>(x.q), cast<To>(x.k), cast<To>(x.v), cast<To>(x.d_o), cast<To>(x.log_decay)};
}

template <class T>
struct LinearOutputs {
  std::vector<T> o, mass, dq, dk, dv, dlog_decay = {};
};

template <class T>
void allocate(LinearOutputs<T>& r, const LinearProblem& p) {
  r.o.assign(count(p.o_shape()), T(NAN));
  r.mass.assign(p.normalised() ? count(p.mass_shape()) : 0, T(NAN));
  r.dq.assign(count(p.q_shape()), T(NAN));
  r.dk.assign(count(p.k_shape()), T(NAN));
  r.dv.assign(count(p.v_shape()), T(NAN));
  r.dlog_decay.assign(p.decays ? count(p.decay_shape()) : 0, T(NAN));
}

template <class T>
Tensor mass_tensor(std::vector<T>& mass, const LinearProblem& p) {
  return p.normalised() ? tensor(mass, p.mass_shape()) : Tensor();
}

template <class T>
Decay decay_tensors(std::vector<T>& log_decay, std::vector<int32_t>& starts, const LinearProblem& p) {
  return {p.decays ? tensor(log_decay, p.decay_shape()) : Tensor(),
          p.documents ? tensor(starts, {p.batch, p.tokens}) : Tensor()};
}

// Sets the number of threads inside a scope. Small problems run faster on one.
class Threads {
 public:
  explicit Threads(int threads) : before_(thread_count()) { set_thread_count(threads); }
  ~Threads() { set_thread_count(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

struct RunOptions {
  bool backward = true;
  int threads = 1;
};

template <class T>
LinearOutputs<T> run_form(const LinearProblem& p, const FormChoice& form, LinearInputs<T> in,
                          const RunOptions& options = {}) {
  const Threads threads(options.threads);
  LinearOutputs<T> r;
  allocate(r, p);
  std::vector<int32_t> starts = document_starts(p);
  run_op([&](Context& ctx) {
    const Decay decay = decay_tensors(in.log_decay, starts, p);
    const Tensor q = tensor(in.q, p.q_shape()), k = tensor(in.k, p.k_shape()), v = tensor(in.v, p.v_shape());
    const Tensor o = tensor(r.o, p.o_shape()), mass = mass_tensor(r.mass, p);
    linear_attention_forward(ctx, o, mass, q, k, v, settings_of(p, form), {}, {}, decay);
    if (!options.backward) return;
    linear_attention_backward(ctx, tensor(r.dq, p.q_shape()), tensor(r.dk, p.k_shape()),
                              tensor(r.dv, p.v_shape()), tensor(in.d_o, p.o_shape()), q, k, v, o, mass,
                              settings_of(p, form), decay,
                              p.decays ? tensor(r.dlog_decay, p.decay_shape()) : Tensor());
  });
  return r;
}
inline constexpr RunOptions forward_only{false, 1};

// A sequence in pieces, each in its own form and continuing the state of the one before: o and the last
// state.
struct Piece {
  int64_t begin, end;
  FormChoice form;
};
template <class T>
std::pair<std::vector<T>, std::vector<T>> run_pieces(const LinearProblem& p, const std::vector<Piece>& pieces,
                                                     LinearInputs<T> in) {
  const Threads threads(1);
  std::vector<T> o(count(p.o_shape()), T(NAN)), mass(p.normalised() ? count(p.mass_shape()) : 0);
  const Shape state_shape = kata::state_shape(p.map, p.read, p.size());
  std::vector<T> state(count(state_shape), T(NAN));
  const auto tokens = [](std::vector<T>& x, const Shape& shape, int64_t begin, int64_t end) {
    const Tensor flat = tensor(x, {shape[0], shape[1] * shape[2] * shape[3]});
    const int64_t row = shape[2] * shape[3];
    const Tensor part = flat.columns(begin * row, end * row).split_last(end - begin, row);
    return part.split_last(shape[2], shape[3]);
  };
  const auto rows = [&](const auto& x, int64_t begin, int64_t end) {  // [B, T, ..] of the piece
    std::decay_t<decltype(x)> part;
    const auto row = static_cast<int64_t>(x.size()) / p.batch, token = row / p.tokens;
    for (int64_t b = 0; b < p.batch; ++b)
      part.insert(part.end(), x.begin() + b * row + begin * token, x.begin() + b * row + end * token);
    return part;
  };
  for (const Piece& piece : pieces) {
    std::vector<int32_t> starts = rows(document_starts(p), piece.begin, piece.end);
    for (int32_t& start : starts) start -= static_cast<int32_t>(piece.begin);
    std::vector<T> log_decay = rows(in.log_decay, piece.begin, piece.end);
    run_op([&](Context& ctx) {
      LinearProblem part = p;
      part.tokens = piece.end - piece.begin;
      std::vector<T> part_mass(p.normalised() ? count(part.mass_shape()) : 0);
      linear_attention_forward(ctx, tokens(o, p.o_shape(), piece.begin, piece.end),
                               mass_tensor(part_mass, part),
                               tokens(in.q, p.q_shape(), piece.begin, piece.end),
                               tokens(in.k, p.k_shape(), piece.begin, piece.end),
                               tokens(in.v, p.v_shape(), piece.begin, piece.end), settings_of(p, piece.form),
                               piece.begin == 0 ? Tensor() : tensor(state, state_shape),
                               tensor(state, state_shape), decay_tensors(log_decay, starts, part));
    });
  }
  return {o, state};
}

// Tokens [begin, T) one at a time through the step, from the given state; p is not in documents.
template <class T>
std::vector<T> run_steps(const LinearProblem& p, LinearInputs<T> in, std::vector<T> state, int64_t begin) {
  const Threads threads(1);
  std::vector<T> o(count(p.o_shape()));
  const auto token = [&](std::vector<T>& x, int64_t heads, int64_t width, int64_t t) {
    const int64_t row = heads * width;
    return tensor(x, {p.batch, p.tokens * row}).columns(t * row, (t + 1) * row).split_last(heads, width);
  };
  for (int64_t t = begin; t < p.tokens; ++t) {
    std::vector<T> decay;
    for (int64_t b = 0; p.decays && b < p.batch; ++b)
      for (int64_t h = 0; h < p.kv_heads; ++h)
        decay.push_back(in.log_decay[static_cast<size_t>((b * p.tokens + t) * p.kv_heads + h)]);
    run_op([&](Context& ctx) {
      linear_attention_step(ctx, token(o, p.heads, p.value_width, t), token(in.q, p.heads, p.map.width, t),
                            token(in.k, p.kv_heads, p.map.width, t),
                            token(in.v, p.kv_heads, p.value_width, t),
                            tensor(state, kata::state_shape(p.map, p.read, p.size())), p.map, p.read,
                            p.decays ? tensor(decay, {p.batch, p.kv_heads}) : Tensor());
    });
  }
  return o;
}

template <class S>
oracle::RecurrenceResult<S> run_oracle(const LinearProblem& p, const std::vector<S>& q,
                                       const std::vector<S>& k, const std::vector<S>& v,
                                       const std::vector<S>& log_decay = {}) {
  return oracle::recurrence<S>(p.map, p.read, p.size(), q, k, v, {}, {log_decay, {}, document_starts(p)});
}
inline oracle::RecurrenceResult<double> run_oracle(const LinearProblem& p, const LinearInputs<double>& in) {
  return run_oracle<double>(p, in.q, in.k, in.v, in.log_decay);
}

// The gradients of <o, d_o> by the complex step of the oracle.
inline LinearOutputs<double> oracle_gradients(const LinearProblem& p, const LinearInputs<double>& in) {
  const auto f = [&](const ComplexInputs& x) {
    return weighted_sum(run_oracle(p, x[0], x[1], x[2], x[3]).o, in.d_o);
  };
  const std::vector<std::vector<double>> inputs = {in.q, in.k, in.v, in.log_decay};
  return {{},
          {},
          complex_step(f, inputs, 0),
          complex_step(f, inputs, 1),
          complex_step(f, inputs, 2),
          complex_step(f, inputs, 3)};
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

// The same function without a decay and with one, in one document a row and in several.
inline std::vector<LinearProblem> faded(const LinearProblem& p) {
  std::vector<LinearProblem> all(4, p);
  all[1].decays = all[2].documents = all[3].decays = all[3].documents = true;
  return all;
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
          {psd_sum(even, even), n},
          {{MapKind::hermitian, even, 1}, n},
          {{MapKind::hermitian, even, 1}, r},
          {{MapKind::hermitian, 2, 1}, n},
          {{MapKind::quaternionic, 8, 1}, n},
          {{MapKind::quaternionic, 4, 1}, n}};
}

}  // namespace kata::test
