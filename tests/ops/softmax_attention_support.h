// One problem of softmax attention, forward and backward in any precision, for the tests of that op.
#pragma once

#include "base/parallel.h"
#include "ops/documents_support.h"
#include "ops/linear_attention_support.h"
#include "ops/softmax_attention.h"

namespace kata::test {

struct SoftmaxCase {
  AttentionSize size;  // batch, tokens, heads, kv_heads, width, value_width
  double scale = 1;    // of the inputs
};
inline void PrintTo(const SoftmaxCase& c, std::ostream* out) {
  *out << "B " << c.size.batch << " T " << c.size.tokens << " H " << c.size.heads << "/" << c.size.kv_heads
       << " d " << c.size.width << " dv " << c.size.value_width << " scale " << c.scale;
}

inline Shape shape_of(const AttentionSize& s, int64_t heads, int64_t width) {
  return {s.batch, s.tokens, heads, width};
}

template <class T>
struct SoftmaxInputs {
  std::vector<T> q, k, v, d_o;
};
inline SoftmaxInputs<double> random_inputs(const SoftmaxCase& c) {
  const AttentionSize& s = c.size;
  return {random_normal(count(shape_of(s, s.heads, s.width)), 1, c.scale),
          random_normal(count(shape_of(s, s.kv_heads, s.width)), 2, c.scale),
          random_normal(count(shape_of(s, s.kv_heads, s.value_width)), 3),
          random_normal(count(shape_of(s, s.heads, s.value_width)), 4)};
}
template <class To, class From>
SoftmaxInputs<To> cast(const SoftmaxInputs<From>& x) {
  return {cast<To>(x.q), cast<To>(x.k), cast<To>(x.v), cast<To>(x.d_o)};
}

template <class T>
struct SoftmaxResult {
  std::vector<T> o, lse, dq, dk, dv;
};

inline double scale_of(const AttentionSize& s) {
  return 1 / std::sqrt(static_cast<double>(s.width));
}

template <class T>
SoftmaxResult<T> run(const AttentionSize& s, SoftmaxInputs<T> in, int threads = 1,
                     std::vector<int32_t> starts = {}) {
  const Threads guard(threads);
  const std::vector<T> nan_o(in.d_o.size(), T(NAN));
  SoftmaxResult<T> r{nan_o, std::vector<T>(count({s.batch, s.tokens, s.heads}), T(NAN)),
                     std::vector<T>(in.q.size(), T(NAN)), std::vector<T>(in.k.size(), T(NAN)),
                     std::vector<T>(in.v.size(), T(NAN))};
  run_op([&](Context& ctx) {
    const Tensor q = tensor(in.q, shape_of(s, s.heads, s.width)),
                 k = tensor(in.k, shape_of(s, s.kv_heads, s.width));
    const Tensor v = tensor(in.v, shape_of(s, s.kv_heads, s.value_width));
    const Tensor o = tensor(r.o, shape_of(s, s.heads, s.value_width));
    const Tensor lse = tensor(r.lse, {s.batch, s.tokens, s.heads});
    const Tensor documents = starts.empty() ? Tensor() : tensor(starts, {s.batch, s.tokens});
    softmax_attention_forward(ctx, o, lse, q, k, v, scale_of(s), documents);
    softmax_attention_backward(ctx, tensor(r.dq, q.shape()), tensor(r.dk, k.shape()), tensor(r.dv, v.shape()),
                               tensor(in.d_o, o.shape()), q, k, v, o, lse, scale_of(s), documents);
  });
  return r;
}

template <class T>
void expect_same_bits(const SoftmaxResult<T>& a, const SoftmaxResult<T>& b) {
  EXPECT_EQ(a.o, b.o);
  EXPECT_EQ(a.lse, b.lse);
  EXPECT_EQ(a.dq, b.dq);
  EXPECT_EQ(a.dk, b.dk);
  EXPECT_EQ(a.dv, b.dv);
}

}  // namespace kata::test
