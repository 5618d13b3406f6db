#include "ops/oracle/softmax_attention.h"
#include "ops/softmax_attention_support.h"

namespace kata {
namespace {

using test::cast;
using test::close;
using test::count;
using test::random_inputs;
using test::run;
using test::scale_of;
using test::shape_of;
using test::tensor;
using test::Threads;
template <class T>
using Inputs = test::SoftmaxInputs<T>;
template <class T>
using Result = test::SoftmaxResult<T>;

// Documents: the lengths of those in the first row; each later row has them turned by one.
struct Documents {
  AttentionSize size;
  std::vector<int64_t> lengths;
};
void PrintTo(const Documents& d, std::ostream* out) {
  PrintTo(test::SoftmaxCase{d.size}, out);
  *out << " of " << d.lengths.size();
}

std::vector<int32_t> starts_of_rows(const AttentionSize& s, const std::vector<int64_t>& lengths) {
  return test::starts_of_rows(s.batch, s.tokens, lengths);
}

// Each document alone, as a row of its own.
Result<double> run_apart(const AttentionSize& s, const Inputs<double>& in,
                         const std::vector<int32_t>& starts) {
  Result<double> all;
  test::for_each_document(starts, s.tokens, [&](int64_t begin, int64_t end) {
    const auto part = [&](const std::vector<double>& x) {
      const auto width = static_cast<int64_t>(x.size()) / (s.batch * s.tokens);
      return std::vector<double>(x.begin() + begin * width, x.begin() + end * width);
    };
    const AttentionSize one{1, end - begin, s.heads, s.kv_heads, s.width, s.value_width};
    auto r = run<double>(one, {part(in.q), part(in.k), part(in.v), part(in.d_o)});
    const auto append = [](std::vector<double>& to, const std::vector<double>& x) {
      to.insert(to.end(), x.begin(), x.end());
    };
    append(all.o, r.o);
    append(all.lse, r.lse);
    append(all.dq, r.dq);
    append(all.dk, r.dk);
    append(all.dv, r.dv);
  });
  return all;
}

void expect_equal(const Result<double>& r, const Result<double>& expected) {
  EXPECT_TRUE(close(r.o, expected.o, 1e-12));
  EXPECT_TRUE(close(r.lse, expected.lse, 1e-12));
  EXPECT_TRUE(test::near(r.dq, expected.dq, 1e-12));
  EXPECT_TRUE(test::near(r.dk, expected.dk, 1e-12));
  EXPECT_TRUE(test::near(r.dv, expected.dv, 1e-12));
}

class SoftmaxDocuments : public ::testing::TestWithParam<Documents> {
 protected:
  AttentionSize s = GetParam().size;
  std::vector<int32_t> starts = starts_of_rows(s, GetParam().lengths);
  Inputs<double> in = random_inputs({s});
};

TEST_P(SoftmaxDocuments, DoubleAgainstTheOracleAndItsComplexStep) {
  const auto r = run<double>(s, in, 1, starts);
  const auto expected = oracle::softmax_attention<double>(s, in.q, in.k, in.v, scale_of(s), starts);
  EXPECT_TRUE(close(r.o, expected.o, 1e-12));
  EXPECT_TRUE(close(r.lse, expected.lse, 1e-12));
  if (s.tokens > 20) return;  // gradients of this size: against the documents apart
  const auto f = [&](const test::ComplexInputs& x) {
    const auto all = oracle::softmax_attention<test::Complex>(s, x[0], x[1], x[2], scale_of(s), starts);
    return test::weighted_sum(all.o, in.d_o);
  };
  EXPECT_TRUE(test::near(r.dq, test::complex_step(f, {in.q, in.k, in.v}, 0), 1e-11));
  EXPECT_TRUE(test::near(r.dk, test::complex_step(f, {in.q, in.k, in.v}, 1), 1e-11));
  EXPECT_TRUE(test::near(r.dv, test::complex_step(f, {in.q, in.k, in.v}, 2), 1e-11));
}

TEST_P(SoftmaxDocuments, EqualTheDocumentsApart) {
  expect_equal(run<double>(s, in, 1, starts), run_apart(s, in, starts));
}

TEST_P(SoftmaxDocuments, FloatAgainstDouble) {
  const auto single = cast<float>(in);
  const auto f = run<float>(s, single, 1, starts);
  const auto d = run<double>(s, cast<double>(single), 1, starts);
  EXPECT_TRUE(close(f.o, d.o, 1e-5));
  EXPECT_TRUE(close(f.lse, d.lse, 1e-6));
  EXPECT_TRUE(test::near(cast<double>(f.dq), d.dq, 1e-5));
  EXPECT_TRUE(test::near(cast<double>(f.dk), d.dk, 1e-5));
  EXPECT_TRUE(test::near(cast<double>(f.dv), d.dv, 1e-5));
}

INSTANTIATE_TEST_SUITE_P(Shapes, SoftmaxDocuments,
                         ::testing::Values(Documents{{1, 1, 1, 1, 4, 3}, {1}},
                                           Documents{{2, 9, 2, 1, 5, 3}, {1, 3, 1, 4}},
                                           Documents{{2, 12, 4, 2, 3, 6}, std::vector<int64_t>(12, 1)},
                                           Documents{{1, 70, 1, 1, 4, 4}, std::vector<int64_t>(70, 1)},
                                           Documents{{1, 330, 2, 1, 8, 5}, {150, 1, 1, 40, 138}},
                                           Documents{{3, 200, 2, 2, 4, 8}, {64, 64, 72}},
                                           Documents{{1, 400, 1, 1, 4, 4}, {250, 5, 145}}));

// Two documents, the second from any place on: every place in blocks of 16 and tiles of 64.
TEST(SoftmaxDocumentsOp, BoundaryAnywhere) {
  const AttentionSize s = {1, 150, 1, 1, 3, 2};
  const auto in = random_inputs({s});
  for (int64_t cut = 1; cut < s.tokens; ++cut) {
    const auto starts = starts_of_rows(s, {cut, s.tokens - cut});
    expect_equal(run<double>(s, in, 1, starts), run_apart(s, in, starts));
  }
}

// What stands in one document, scores beyond the range of exp included, reaches no other.
TEST(SoftmaxDocumentsOp, DocumentsDoNotReachEachOtherToTheBit) {
  const AttentionSize s = {1, 150, 2, 1, 4, 4};
  const auto starts = starts_of_rows(s, {30, 70, 50});
  const auto in = cast<float>(random_inputs({s}));
  Inputs<float> changed = in;
  for (auto* x : {&changed.q, &changed.k, &changed.v, &changed.d_o}) {
    const int64_t width = static_cast<int64_t>(x->size()) / s.tokens;
    for (int64_t i = 30 * width; i < 100 * width; ++i) (*x)[static_cast<size_t>(i)] *= 1000;
  }
  const auto a = run<float>(s, in, 1, starts), b = run<float>(s, changed, 1, starts);
  const std::pair<const std::vector<float>*, const std::vector<float>*> pairs[] = {
      {&a.o, &b.o}, {&a.lse, &b.lse}, {&a.dq, &b.dq}, {&a.dk, &b.dk}, {&a.dv, &b.dv}};
  for (const auto& [x, y] : pairs) {
    const int64_t width = static_cast<int64_t>(x->size()) / s.tokens;
    EXPECT_TRUE(std::equal(x->begin(), x->begin() + 30 * width, y->begin()));
    EXPECT_TRUE(std::equal(x->begin() + 100 * width, x->end(), y->begin() + 100 * width));
    EXPECT_NE((*x)[static_cast<size_t>(60 * width)], (*y)[static_cast<size_t>(60 * width)]);
    for (const float value : *y) EXPECT_TRUE(std::isfinite(value));
  }
}

// A cache with room to spare whose rest is never read.
struct Cache {
  std::vector<double> keys, values;
  int64_t batch, capacity, heads, width, value_width;

  Cache(const AttentionSize& s, int64_t spare)
      : batch(s.batch),
        capacity(s.tokens + spare),
        heads(s.kv_heads),
        width(s.width),
        value_width(s.value_width) {
    keys.assign(count({batch, capacity, heads, width}), NAN);
    values.assign(count({batch, capacity, heads, value_width}), NAN);
  }
  // Copies tokens [begin, end) of every row.
  void put(const AttentionSize& s, const Inputs<double>& in, int64_t begin, int64_t end) {
    const auto copy = [&](std::vector<double>& to, const std::vector<double>& from, int64_t n) {
      for (int64_t b = 0; b < batch; ++b)
        std::copy(from.begin() + (b * s.tokens + begin) * n, from.begin() + (b * s.tokens + end) * n,
                  to.begin() + (b * capacity + begin) * n);
    };
    copy(keys, in.k, heads * width);
    copy(values, in.v, heads * value_width);
  }
  Tensor k() { return tensor(keys, {batch, capacity, heads, width}); }
  Tensor v() { return tensor(values, {batch, capacity, heads, value_width}); }
};

// Tokens [begin, end) of every row of x [batch, tokens, heads, width].
Tensor tokens_of(const Tensor& x, int64_t begin, int64_t end) {
  const int64_t row = x.dim(2) * x.dim(3);
  const Tensor flat = x.view({x.dim(0), x.dim(1) * row});
  return flat.columns(begin * row, end * row).split_last(end - begin, row).split_last(x.dim(2), x.dim(3));
}

// Each token of a sequence through the step, its row's document beginning where it does.
TEST(SoftmaxDocumentsOp, StepsAreTheSequence) {
  const AttentionSize s = {2, 300, 4, 2, 8, 6};
  auto in = random_inputs({s});
  const Threads threads(1);
  for (const auto& starts : {std::vector<int32_t>(), starts_of_rows(s, {1, 139, 160})}) {
    const auto expected = oracle::softmax_attention<double>(s, in.q, in.k, in.v, scale_of(s), starts);
    Cache cache(s, 5);
    std::vector<double> o(in.d_o.size());
    for (int64_t t = 0; t < s.tokens; ++t) {
      cache.put(s, in, t, t + 1);
      std::vector<int32_t> first;
      for (int64_t b = 0; b < s.batch && !starts.empty(); ++b)
        first.push_back(starts[static_cast<size_t>(b * s.tokens + t)]);
      test::run_op([&](Context& ctx) {
        const Tensor q_t = tensor(in.q, {2, 300 * 32}).columns(t * 32, t * 32 + 32).split_last(4, 8);
        const Tensor o_t = tensor(o, {2, 300 * 24}).columns(t * 24, t * 24 + 24).split_last(4, 6);
        softmax_attention_step(ctx, o_t, q_t, cache.k(), cache.v(), t + 1, scale_of(s),
                               first.empty() ? Tensor() : tensor(first, {2}));
      });
    }
    EXPECT_TRUE(close(o, expected.o, 1e-12));
  }
}

// A sequence in two pieces over the cache, cut at every place, with documents and without.
TEST(SoftmaxDocumentsOp, PrefillOverACacheIsTheSequence) {
  const AttentionSize s = {2, 150, 4, 2, 3, 2};
  auto in = random_inputs({s});
  const Threads threads(1);
  for (auto starts : {std::vector<int32_t>(), starts_of_rows(s, {1, 66, 70, 13})}) {
    const auto expected = oracle::softmax_attention<double>(s, in.q, in.k, in.v, scale_of(s), starts);
    for (int64_t cut = 0; cut < s.tokens; cut += cut % 64 == 2 ? 12 : 1) {
      Cache cache(s, 3);
      std::vector<double> o(in.d_o.size(), NAN), lse(expected.lse.size());
      for (const auto& [begin, end] : {std::pair(int64_t{0}, cut), std::pair(cut, s.tokens)}) {
        if (begin == end) continue;
        cache.put(s, in, begin, end);
        std::vector<double> part(count({s.batch, end - begin, s.heads}), NAN);
        std::vector<int32_t> seen;
        for (int64_t i = 0; i < s.batch * (end - begin) && !starts.empty(); ++i) {
          const int64_t b = i / (end - begin), t = begin + i % (end - begin);
          seen.push_back(starts[static_cast<size_t>(b * s.tokens + t)] - static_cast<int32_t>(begin));
        }
        test::run_op([&](Context& ctx) {
          softmax_attention_forward(ctx,
                                    tokens_of(tensor(o, shape_of(s, s.heads, s.value_width)), begin, end),
                                    tensor(part, {s.batch, end - begin, s.heads}),
                                    tokens_of(tensor(in.q, shape_of(s, s.heads, s.width)), begin, end),
                                    tokens_of(cache.k(), 0, end), tokens_of(cache.v(), 0, end), scale_of(s),
                                    seen.empty() ? Tensor() : tensor(seen, {s.batch, end - begin}), begin);
        });
        for (int64_t b = 0; b < s.batch; ++b)
          std::copy_n(part.begin() + b * (end - begin) * s.heads, (end - begin) * s.heads,
                      lse.begin() + (b * s.tokens + begin) * s.heads);
      }
      ASSERT_TRUE(close(o, expected.o, 1e-12)) << cut;
      ASSERT_TRUE(close(lse, expected.lse, 1e-12)) << cut;
    }
  }
}

}  // namespace
}  // namespace kata
