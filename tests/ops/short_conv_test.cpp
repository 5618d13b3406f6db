#include "ops/short_conv.h"

#include "base/parallel.h"
#include "ops/documents_support.h"
#include "ops/oracle/short_conv.h"
#include "support/compare.h"
#include "support/gradient.h"
#include "support/op_runner.h"
#include "support/sparse.h"

namespace kata {
namespace {

using test::cast;
using test::close;
using test::random_normal;
using test::tensor;

struct Case {
  int64_t batch, time, channels, taps;
  double scale;

  size_t count() const { return static_cast<size_t>(batch * time * channels); }
  size_t weights() const { return static_cast<size_t>(channels * taps); }
};

// What a call may leave out, empty where it does: bias [channels], starts [batch, time], window_in.
template <class T>
struct Extras {
  std::vector<T> bias;
  std::vector<int32_t> starts;
  std::vector<T> window;
};

template <class T>
struct Result {
  std::vector<T> y, dx, dw, db;
};

template <class T>
Tensor optional(std::vector<T>& data, const Shape& shape) {
  return data.empty() ? Tensor() : tensor(data, shape);
}

template <class T>
Result<T> run(std::vector<T> x, std::vector<T> w, std::vector<T> dy, const Case& c, Extras<T> extras = {}) {
  Result<T> r{std::vector<T>(x.size(), NAN), std::vector<T>(x.size(), NAN), std::vector<T>(w.size()),
              std::vector<T>(extras.bias.size())};
  test::run_op([&](Context& ctx) {
    const Shape shape{c.batch, c.time, c.channels}, filter{c.channels, c.taps};
    const Tensor bias = optional(extras.bias, {c.channels}), db = optional(r.db, {c.channels});
    const Tensor starts = optional(extras.starts, {c.batch, c.time});
    const Tensor window = optional(extras.window, {c.batch, c.taps - 1, c.channels});
    short_conv_forward(ctx, tensor(r.y, shape), tensor(x, shape), tensor(w, filter), bias, starts, window);
    if (window.defined()) return;  // the backward is that of a sequence from its beginning
    short_conv_backward(ctx, tensor(r.dx, shape), tensor(r.dw, filter), tensor(dy, shape), tensor(x, shape),
                        tensor(w, filter), bias, db, starts);
  });
  return r;
}

class ShortConv : public ::testing::TestWithParam<Case> {
 protected:
  Case c = GetParam();
  std::vector<double> x = random_normal(c.count(), 1, c.scale), w = random_normal(c.weights(), 2),
                      dy = random_normal(c.count(), 3);

  template <class S>
  std::vector<S> exact(const std::vector<S>& in, const std::vector<S>& weight) const {
    return oracle::short_conv<S>(in, weight, static_cast<size_t>(c.time), static_cast<size_t>(c.channels));
  }
};

TEST_P(ShortConv, DoubleAgainstTheOracleAndItsComplexStep) {
  const auto r = run<double>(x, w, dy, c);
  EXPECT_TRUE(close(r.y, exact(x, w), 1e-14));
  if (c.count() > 500) return;  // gradients of this size: in the next test
  const auto f = [&](const test::ComplexInputs& in) { return test::weighted_sum(exact(in[0], in[1]), dy); };
  EXPECT_TRUE(close(r.dx, test::complex_step(f, {x, w}, 0), 1e-12));
  EXPECT_TRUE(close(r.dw, test::complex_step(f, {x, w}, 1), 1e-12));
}

// For every size: the derivative of the oracle along directions, by the complex step.
TEST_P(ShortConv, DoubleGradientsAlongDirections) {
  const auto r = run<double>(x, w, dy, c);
  const auto along = [&](const std::vector<double>& ex, const std::vector<double>& ew) {
    std::vector<test::Complex> xc, wc;
    for (size_t i = 0; i < x.size(); ++i) xc.emplace_back(x[i], 1e-30 * ex[i]);
    for (size_t i = 0; i < w.size(); ++i) wc.emplace_back(w[i], 1e-30 * ew[i]);
    return test::weighted_sum(exact(xc, wc), dy).imag() / 1e-30;
  };
  for (uint64_t seed = 10; seed < 14; ++seed) {
    const auto ex = random_normal(x.size(), seed), ew = random_normal(w.size(), seed + 10);
    const double dx = test::weighted_sum(r.dx, ex), dw = test::weighted_sum(r.dw, ew);
    const double size = std::sqrt(test::weighted_sum(r.dx, r.dx)) + std::sqrt(test::weighted_sum(r.dw, r.dw));
    EXPECT_NEAR(along(ex, std::vector<double>(w.size())), dx, 1e-11 * size);
    EXPECT_NEAR(along(std::vector<double>(x.size()), ew), dw, 1e-11 * size);
  }
}

TEST_P(ShortConv, OneDocumentARowIsNoStartsToTheBit) {
  const auto xf = cast<float>(x), wf = cast<float>(w), gf = cast<float>(dy);
  const auto plain = run<float>(xf, wf, gf, c);
  for (const int32_t start : {0, -2, -100}) {  // before the call, too: nothing is carried in
    const std::vector<int32_t> starts(static_cast<size_t>(c.batch * c.time), start);
    const auto r = run<float>(xf, wf, gf, c, {{}, starts, {}});
    EXPECT_EQ(r.y, plain.y);
    EXPECT_EQ(r.dx, plain.dx);
    EXPECT_EQ(r.dw, plain.dw);
  }
}

TEST_P(ShortConv, FloatAgainstDouble) {
  const auto xf = cast<float>(x), wf = cast<float>(w), gf = cast<float>(dy);
  const auto f = run<float>(xf, wf, gf, c);
  const auto d = run<double>(cast<double>(xf), cast<double>(wf), cast<double>(gf), c);
  EXPECT_TRUE(close(f.y, d.y, 1e-6));
  EXPECT_TRUE(close(f.dx, d.dx, 2e-6));
  EXPECT_TRUE(close(f.dw, d.dw, 2e-6));
}

// One step after the other from an empty window, and from the window of a prefix.
TEST_P(ShortConv, StepsEqualTheForward) {
  const auto whole = run<double>(x, w, dy, c).y;
  for (const int64_t cut : {int64_t{0}, c.time / 2, c.time - 1}) {
    std::vector<double> prefix, window(static_cast<size_t>(c.batch * (c.taps - 1) * c.channels), NAN);
    for (int64_t b = 0; b < c.batch; ++b) {
      const auto start = x.begin() + b * c.time * c.channels;
      prefix.insert(prefix.end(), start, start + cut * c.channels);
    }
    const size_t row = static_cast<size_t>(c.batch * c.channels);
    std::vector<double> in(row), out(row);
    Arena arena(0);
    Context ctx{arena};
    const Tensor state = tensor(window, {c.batch, c.taps - 1, c.channels});
    short_conv_window(ctx, state, tensor(prefix, {c.batch, cut, c.channels}));
    for (int64_t t = cut; t < c.time; ++t) {
      const auto at = [&](size_t i) {  // element i of [batch, channels] at time t
        const int64_t b = static_cast<int64_t>(i) / c.channels, ch = static_cast<int64_t>(i) % c.channels;
        return static_cast<size_t>((b * c.time + t) * c.channels + ch);
      };
      for (size_t i = 0; i < row; ++i) in[i] = x[at(i)];
      short_conv_step(ctx, tensor(out, {c.batch, c.channels}), tensor(in, {c.batch, c.channels}), state,
                      tensor(w, {c.channels, c.taps}));
      for (size_t i = 0; i < row; ++i)
        ASSERT_NEAR(out[i], whole[at(i)], 1e-14 * c.scale * 10) << cut << " " << t << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ShortConv,
                         ::testing::Values(Case{1, 1, 1, 4, 1}, Case{1, 1, 3, 1, 1}, Case{2, 7, 5, 4, 1},
                                           Case{3, 2, 4, 4, 1}, Case{1, 9, 3, 2, 1e3}, Case{2, 9, 3, 3, 1e-6},
                                           Case{1, 20, 2, 16, 1}, Case{1, 6, 2, 7, 1}, Case{3, 300, 5, 4, 1},
                                           Case{2, 130, 131, 4, 1}, Case{600, 1, 2, 4, 1}));

// Documents: the lengths of those in the first row; each later row has them turned by one.
struct Documents {
  Case c;
  std::vector<int64_t> lengths;
};
void PrintTo(const Documents& d, std::ostream* out) {
  *out << "B " << d.c.batch << " T " << d.c.time << " C " << d.c.channels << " taps " << d.c.taps << " of "
       << d.lengths.size();
}

std::vector<int32_t> starts_of_rows(const Case& c, const std::vector<int64_t>& lengths) {
  return test::starts_of_rows(c.batch, c.time, lengths);
}

// Each document alone, as a sequence of its own.
Result<double> run_apart(const std::vector<double>& x, const std::vector<double>& w,
                         const std::vector<double>& dy, const Case& c, const Extras<double>& extras) {
  Result<double> all{{}, {}, std::vector<double>(w.size()), std::vector<double>(extras.bias.size())};
  test::for_each_document(extras.starts, c.time, [&](int64_t begin, int64_t end) {
    const auto part = [&](const std::vector<double>& v) {
      return std::vector<double>(v.begin() + begin * c.channels, v.begin() + end * c.channels);
    };
    const auto r =
        run<double>(part(x), w, part(dy), {1, end - begin, c.channels, c.taps, 1}, {extras.bias, {}, {}});
    all.y.insert(all.y.end(), r.y.begin(), r.y.end());
    all.dx.insert(all.dx.end(), r.dx.begin(), r.dx.end());
    for (size_t j = 0; j < w.size(); ++j) all.dw[j] += r.dw[j];
    for (size_t j = 0; j < all.db.size(); ++j) all.db[j] += r.db[j];
  });
  return all;
}

void expect_equal(const Result<double>& r, const Result<double>& expected) {
  EXPECT_TRUE(close(r.y, expected.y, 1e-12));
  EXPECT_TRUE(close(r.dx, expected.dx, 1e-12));
  EXPECT_TRUE(close(r.dw, expected.dw, 1e-12));
  EXPECT_TRUE(close(r.db, expected.db, 1e-12));
}

class ShortConvDocuments : public ::testing::TestWithParam<Documents> {
 protected:
  Case c = GetParam().c;
  std::vector<double> x = random_normal(c.count(), 1), w = random_normal(c.weights(), 2),
                      dy = random_normal(c.count(), 3);
  Extras<double> extras{
      random_normal(static_cast<size_t>(c.channels), 4), starts_of_rows(c, GetParam().lengths), {}};

  template <class S>
  std::vector<S> exact(const std::vector<S>& in, const std::vector<S>& weight, const std::vector<S>& bias) {
    return oracle::short_conv<S>(in, weight, static_cast<size_t>(c.time), static_cast<size_t>(c.channels),
                                 {bias, extras.starts, {}});
  }
};

TEST_P(ShortConvDocuments, DoubleAgainstTheOracleAndItsComplexStep) {
  const auto r = run<double>(x, w, dy, c, extras);
  EXPECT_TRUE(close(r.y, exact(x, w, extras.bias), 1e-14));
  if (c.count() > 500) return;  // gradients of this size: against the documents apart
  const auto f = [&](const test::ComplexInputs& in) {
    return test::weighted_sum(exact(in[0], in[1], in[2]), dy);
  };
  EXPECT_TRUE(close(r.dx, test::complex_step(f, {x, w, extras.bias}, 0), 1e-12));
  EXPECT_TRUE(close(r.dw, test::complex_step(f, {x, w, extras.bias}, 1), 1e-12));
  EXPECT_TRUE(close(r.db, test::complex_step(f, {x, w, extras.bias}, 2), 1e-12));
}

TEST_P(ShortConvDocuments, EqualTheDocumentsApart) {
  expect_equal(run<double>(x, w, dy, c, extras), run_apart(x, w, dy, c, extras));
  extras.bias.clear();
  expect_equal(run<double>(x, w, dy, c, extras), run_apart(x, w, dy, c, extras));
}

TEST_P(ShortConvDocuments, FloatAgainstDouble) {
  const auto xf = cast<float>(x), wf = cast<float>(w), gf = cast<float>(dy), bf = cast<float>(extras.bias);
  const auto f = run<float>(xf, wf, gf, c, {bf, extras.starts, {}});
  const auto d = run<double>(cast<double>(xf), cast<double>(wf), cast<double>(gf), c,
                             {cast<double>(bf), extras.starts, {}});
  EXPECT_TRUE(close(f.y, d.y, 1e-6));
  EXPECT_TRUE(close(f.dx, d.dx, 2e-6));
  EXPECT_TRUE(close(f.dw, d.dw, 2e-6));
  EXPECT_TRUE(close(f.db, d.db, 2e-6));
}

// The sequence in two pieces, cut anywhere, and then on by steps: the window is all that is carried. A
// document that began before a piece has a negative start in it.
TEST_P(ShortConvDocuments, PiecesAndStepsEqualTheWhole) {
  const auto whole = run<double>(x, w, dy, c, extras).y;
  const int64_t row = c.time * c.channels;
  const auto piece = [&](std::vector<double>& values, int64_t from, int64_t to) {
    std::vector<double> part;
    for (int64_t b = 0; b < c.batch; ++b)
      part.insert(part.end(), values.begin() + b * row + from * c.channels,
                  values.begin() + b * row + to * c.channels);
    return part;
  };
  const int64_t few = c.time > 40 ? c.time / 7 : 1;
  for (int64_t cut = 0; cut < c.time; cut += few)
    for (const int64_t next : {cut + 1, cut + 2, c.time}) {
      std::vector<double> window(static_cast<size_t>(c.batch * (c.taps - 1) * c.channels), 0);
      const Shape window_shape{c.batch, c.taps - 1, c.channels};
      Arena arena(1 << 20);
      Context ctx{arena};
      const auto forward = [&](int64_t from, int64_t to) {
        if (to > c.time) return;
        std::vector<int32_t> starts;
        for (int64_t b = 0; b < c.batch; ++b)
          for (int64_t t = from; t < to; ++t)
            starts.push_back(extras.starts[static_cast<size_t>(b * c.time + t)] - static_cast<int32_t>(from));
        auto in = piece(x, from, to);
        const Case part{c.batch, to - from, c.channels, c.taps, 1};
        const auto y = run<double>(in, w, in, part, {extras.bias, starts, window}).y;
        auto expected = whole;
        EXPECT_TRUE(close(y, piece(expected, from, to), 1e-14)) << from << " " << to;
        const Tensor state = tensor(window, window_shape), all = tensor(starts, {c.batch, to - from});
        short_conv_window(ctx, state, tensor(in, {c.batch, to - from, c.channels}), all, state);
      };
      forward(0, cut);
      forward(cut, next);
      for (int64_t t = next; t < c.time && t < next + 2; ++t) {
        bool same = true;  // a step knows no documents: only while none begins
        for (int64_t b = 0; b < c.batch; ++b)
          same = same && extras.starts[static_cast<size_t>(b * c.time + t)] < next;
        if (!same) break;
        auto in = piece(x, t, t + 1), y = in, expected = whole;
        short_conv_step(ctx, tensor(y, {c.batch, c.channels}), tensor(in, {c.batch, c.channels}),
                        tensor(window, window_shape), tensor(w, {c.channels, c.taps}),
                        tensor(extras.bias, {c.channels}));
        EXPECT_TRUE(close(y, piece(expected, t, t + 1), 1e-14)) << cut << " " << next << " " << t;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ShortConvDocuments,
    ::testing::Values(Documents{{1, 1, 1, 4, 1}, {1}}, Documents{{2, 12, 3, 4, 1}, {1, 2, 3, 1, 5}},
                      Documents{{1, 9, 2, 4, 1}, std::vector<int64_t>(9, 1)},
                      Documents{{1, 9, 3, 2, 1}, {4, 5}}, Documents{{2, 9, 3, 3, 1}, {2, 7}},
                      Documents{{1, 20, 2, 16, 1}, {5, 15}}, Documents{{1, 6, 2, 7, 1}, {3, 3}},
                      Documents{{2, 7, 2, 1, 1}, {3, 4}}, Documents{{2, 14, 300, 4, 1}, {6, 1, 7}},
                      Documents{{3, 300, 5, 4, 1}, {100, 1, 60, 3, 136}}));

// Two documents, the second from any place on: around the end of a block of rows as well.
TEST(ShortConvOp, BoundaryAnywhere) {
  const Case c{1, 270, 2, 4, 1};
  const auto x = random_normal(c.count(), 1), w = random_normal(c.weights(), 2),
             dy = random_normal(c.count(), 3);
  for (int64_t cut = 1; cut < c.time; cut += cut == 20 ? 230 : 1) {
    const Extras<double> extras{{}, starts_of_rows(c, {cut, c.time - cut}), {}};
    expect_equal(run<double>(x, w, dy, c, extras), run_apart(x, w, dy, c, extras));
  }
}

// Without starts a window is the past of the document, as far as it goes.
TEST(ShortConvOp, WindowAloneIsThePast) {
  const Case whole{2, 9, 3, 4, 1}, rest{2, 5, 3, 4, 1};
  const auto x = random_normal(whole.count(), 1), w = random_normal(whole.weights(), 2);
  std::vector<double> tail, window, expected;
  const auto y = run<double>(x, w, x, whole).y;
  for (int64_t b = 0; b < 2; ++b) {
    const auto row = x.begin() + b * 27, out = y.begin() + b * 27;
    window.insert(window.end(), row + 3, row + 12);
    tail.insert(tail.end(), row + 12, row + 27);
    expected.insert(expected.end(), out + 12, out + 27);
  }
  EXPECT_TRUE(close(run<double>(tail, w, tail, rest, {{}, {}, window}).y, expected, 1e-15));
  const auto exact = oracle::short_conv<double>(tail, w, 5, 3, {{}, {}, window});
  EXPECT_TRUE(close(exact, expected, 1e-15));
}

TEST(ShortConvOp, WindowHoldsTheLastDocumentOnly) {
  std::vector<double> x = {1, 2, 3, 4}, old = {-3, -2, -1};
  Arena arena(0);
  Context ctx{arena};
  const auto after = [&](std::vector<int32_t> starts, int64_t time, bool carried) {
    std::vector<double> window(3, NAN), in(x.begin(), x.begin() + time);
    short_conv_window(ctx, tensor(window, {1, 3, 1}), tensor(in, {1, time, 1}), optional(starts, {1, time}),
                      carried ? tensor(old, {1, 3, 1}) : Tensor());
    return window;
  };
  using V = std::vector<double>;
  EXPECT_EQ(after({0, 0, 0, 0}, 4, true), (V{2, 3, 4}));
  EXPECT_EQ(after({0, 0, 2, 2}, 4, true), (V{0, 3, 4}));
  EXPECT_EQ(after({0, 1, 2, 3}, 4, true), (V{0, 0, 4}));
  EXPECT_EQ(after({0}, 1, true), (V{0, 0, 1}));
  EXPECT_EQ(after({-1}, 1, true), (V{0, -1, 1}));
  EXPECT_EQ(after({-9, -9}, 2, true), (V{-1, 1, 2}));
  EXPECT_EQ(after({-9, -9}, 2, false), (V{0, 1, 2}));
  EXPECT_EQ(after({}, 1, true), (V{-2, -1, 1}));
  EXPECT_EQ(after({}, 0, true), old);
  EXPECT_EQ(after({}, 1, false), (V{0, 0, 1}));
}

TEST(ShortConvOp, DocumentsDoNotReachEachOtherToTheBit) {
  const Case c{1, 12, 3, 4, 1};
  auto x = random_normal<float>(c.count(), 1), dy = random_normal<float>(c.count(), 3);
  const auto w = random_normal<float>(c.weights(), 2);
  const Extras<float> extras{{}, starts_of_rows(c, {4, 5, 3}), {}};
  const auto before = run<float>(x, w, dy, c, extras);
  for (size_t i = 4 * 3; i < 9 * 3; ++i) x[i] += 1, dy[i] -= 1;
  const auto after = run<float>(x, w, dy, c, extras);
  for (size_t i = 0; i < before.y.size(); ++i) {
    const bool inside = i >= 4 * 3 && i < 9 * 3;
    EXPECT_EQ(before.y[i] != after.y[i], inside) << i;
    EXPECT_EQ(before.dx[i] != after.dx[i], inside) << i;
  }
}

TEST(ShortConvOp, RefusesWrongShapes) {
  Arena plan;
  Context ctx{plan};
  const auto null = [](const Shape& s, DType type = DType::f32) { return Tensor(nullptr, type, s); };
  const Tensor x = null({2, 5, 3}), w = null({3, 4}), bias = null({3}), starts = null({2, 5}, DType::i32);
  EXPECT_NO_THROW(short_conv_forward(ctx, x, x, w, bias, starts, null({2, 3, 3})));
  EXPECT_THROW(short_conv_forward(ctx, x, x, w, null({4})), std::logic_error);
  EXPECT_THROW(short_conv_forward(ctx, x, x, w, {}, null({2, 4}, DType::i32)), std::logic_error);
  EXPECT_THROW(short_conv_forward(ctx, x, x, w, {}, null({2, 5}, DType::i64)), std::logic_error);
  EXPECT_THROW(short_conv_forward(ctx, x, x, w, {}, {}, null({2, 4, 3})), std::logic_error);
  EXPECT_NO_THROW(short_conv_backward(ctx, x, w, x, x, w, bias, bias, starts));
  EXPECT_THROW(short_conv_backward(ctx, x, w, x, x, w, bias), std::logic_error);
  EXPECT_THROW(short_conv_backward(ctx, x, w, x, x, w, {}, bias), std::logic_error);
  EXPECT_THROW(short_conv_window(ctx, null({2, 3, 3}), x, null({1, 5}, DType::i32)), std::logic_error);
}

TEST(ShortConvOp, CentralDifference) {
  const Case c{2, 6, 3, 4, 1};
  const auto x = random_normal(c.count(), 1), w = random_normal(c.weights(), 2),
             dy = random_normal(c.count(), 3);
  const auto r = run<double>(x, w, dy, c);
  const test::RealFunction f = [&](const std::vector<std::vector<double>>& in) {
    return test::weighted_sum(run<double>(in[0], in[1], dy, c).y, dy);
  };
  const auto ex = random_normal(x.size(), 4), ew = random_normal(w.size(), 5);
  EXPECT_NEAR(test::central_difference(f, {x, w}, 0, ex, 1e-5), test::weighted_sum(r.dx, ex), 1e-7);
  EXPECT_NEAR(test::central_difference(f, {x, w}, 1, ew, 1e-5), test::weighted_sum(r.dw, ew), 1e-7);
}

TEST(ShortConvOp, IsCausalToTheBitAndKeepsSequencesApart) {
  const Case c{2, 12, 3, 4, 1};
  auto x = random_normal<float>(c.count(), 1);
  const auto w = random_normal<float>(c.weights(), 2), dy = random_normal<float>(c.count(), 3);
  const auto before = run<float>(x, w, dy, c).y;
  const size_t changed = 5 * 3;  // time 5 of the first sequence
  x[changed] += 1;
  const auto after = run<float>(x, w, dy, c).y;
  for (size_t i = 0; i < before.size(); ++i) {
    const bool reached = i >= changed && i <= changed + 3 * 3 && (i - changed) % 3 == 0;
    EXPECT_EQ(before[i] != after[i], reached) << i;
  }
}

TEST(ShortConvOp, ZerosGiveZeroAndTheLinearGradient) {
  const Case c{1, 3, 1, 2, 1};
  const auto r = run<double>({0, 0, 0}, {2, 6}, {1, 1, 1}, c);
  EXPECT_EQ(r.y, (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(r.dx, (std::vector<double>{4, 4, 3}));  // silu'(0) = 1/2
  EXPECT_EQ(r.dw, (std::vector<double>{0, 0}));
}

TEST(ShortConvOp, ParameterGradientsAreAdded) {
  const Case c{1, 4, 2, 3, 1};
  auto x = random_normal(c.count(), 1), w = random_normal(c.weights(), 2), dy = random_normal(c.count(), 3);
  auto bias = random_normal(2, 4);
  const auto r = run<double>(x, w, dy, c, {bias, {}, {}});
  std::vector<double> dx(x.size()), dw(w.size(), 5), db(2, -3);
  test::run_op([&](Context& ctx) {
    const Shape shape{1, 4, 2};
    short_conv_backward(ctx, tensor(dx, shape), tensor(dw, {2, 3}), tensor(dy, shape), tensor(x, shape),
                        tensor(w, {2, 3}), tensor(bias, {2}), tensor(db, {2}));
  });
  for (size_t i = 0; i < dw.size(); ++i) EXPECT_NEAR(dw[i], r.dw[i] + 5, 1e-13);
  for (size_t i = 0; i < db.size(); ++i) EXPECT_NEAR(db[i], r.db[i] - 3, 1e-13);
}

TEST(ShortConvOp, ThreadCountChangesNoBit) {
  const Case c{3, 301, 140, 4, 1};
  const auto x = random_normal<float>(c.count(), 1), w = random_normal<float>(c.weights(), 2),
             dy = random_normal<float>(c.count(), 3);
  const Extras<float> documents{random_normal<float>(140, 4), starts_of_rows(c, {200, 3, 98}), {}};
  for (const auto& extras : {Extras<float>{}, documents}) {
    set_thread_count(1);
    const auto one = run<float>(x, w, dy, c, extras);
    set_thread_count(2);
    const auto two = run<float>(x, w, dy, c, extras);
    EXPECT_EQ(one.y, two.y);
    EXPECT_EQ(one.dx, two.dx);
    EXPECT_EQ(one.dw, two.dw);
    EXPECT_EQ(one.db, two.db);
  }
}

TEST(ShortConvOp, LargeInputOfTheWindow) {
  const int64_t time = (int64_t{1} << 22) + 3, channels = 512;  // above 2^31 elements
  test::SparseArray<float> x(time * channels);
  KATA_SKIP_UNLESS_MAPPED(x);
  x[time * channels - 1] = 3;
  x[(time - 3) * channels] = 1;
  std::vector<float> window(3 * 512, NAN);
  Arena arena(0);
  Context ctx{arena};
  short_conv_window(ctx, tensor(window, {1, 3, channels}), x.tensor({1, time, channels}));
  EXPECT_EQ(window.front(), 1);
  EXPECT_EQ(window.back(), 3);
}

}  // namespace
}  // namespace kata
