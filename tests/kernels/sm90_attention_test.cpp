// Against a plain double loop over the same bf16 inputs; q, k and v are parts of wider rows.
#include "base/bf16.h"
#include "kernels/sm90/attention.h"
#include "support/gpu_trial.h"

namespace kata {
namespace {

using cuda::sm90::Score;

constexpr int64_t width = 64;

// Views of [batch, tokens, heads, 64] inside rows of `row` elements, from `column` on.
struct Layout {
  int64_t tokens, row, column;
  int64_t at(int64_t b, int64_t t, int64_t h) const { return (b * tokens + t) * row + column + h * width; }
  template <class T>
  cuda::sm90::View<T> view(T* data) const {
    return {data + column, tokens * row, row, width};
  }
};

struct Case {
  int64_t batch, tokens, heads, kv_heads;
  cuda::sm90::Size size() const { return {batch, tokens, heads, kv_heads, width, width}; }
  int64_t fused() const { return (heads + 2 * kv_heads) * width + 16; }
  Layout q() const { return {tokens, fused(), 0}; }
  Layout k() const { return {tokens, fused(), heads * width}; }
  Layout v() const { return {tokens, fused(), (heads + kv_heads) * width}; }
  Layout o() const { return {tokens, heads * width + 8, 8}; }
  size_t fused_count() const { return static_cast<size_t>(batch * tokens * fused()); }
  size_t o_count() const { return static_cast<size_t>(batch * tokens * o().row); }
  size_t rows() const { return static_cast<size_t>(batch * tokens * heads); }
};

int groups_of(Score score) {
  return score == Score::psd4 ? 4 : score == Score::psd2 ? 2 : 1;
}

struct Outcome {
  std::vector<double> o, statistic, gradient;  // gradient: of the fused rows
  std::vector<double> uncancelled;             // of the fused rows; without the difference inside dA
};

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}
void add(double* to, double factor, const double* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += factor * x[i];
}

// One query token of one head, both passes.
void expect_row(Outcome& out, const Case& c, Score score, double scale, const std::vector<double>& fused,
                const std::vector<double>& d_o, int64_t b, int64_t t, int64_t h) {
  const int64_t kv = h / (c.heads / c.kv_heads), groups = groups_of(score), part = width / groups;
  const double *q = &fused[c.q().at(b, t, h)], *g = &d_o[c.o().at(b, t, h)];
  double* o = &out.o[c.o().at(b, t, h)];
  std::vector<double> weight(static_cast<size_t>(t + 1));
  double most = -INFINITY, sum = 0;
  for (int64_t s = 0; s <= t; ++s) {
    const double* k = &fused[c.k().at(b, s, kv)];
    for (int64_t i = 0; i < groups; ++i) {
      const double r = scale * dot(q + i * part, k + i * part, part);
      weight[s] += score == Score::softmax ? r : r * r;
    }
    most = std::max(most, weight[s]);
  }
  for (double& w : weight) sum += w = score == Score::softmax ? std::exp(w - most) : w;
  out.statistic[(b * c.tokens + t) * c.heads + h] = score == Score::softmax ? most + std::log(sum) : sum;
  for (int64_t s = 0; s <= t; ++s) add(o, weight[s] / sum, &fused[c.v().at(b, s, kv)], width);
  const double e = dot(o, g, width);
  for (int64_t s = 0; s <= t; ++s) {
    const double *k = &fused[c.k().at(b, s, kv)], *v = &fused[c.v().at(b, s, kv)];
    add(&out.gradient[c.v().at(b, s, kv)], weight[s] / sum, g, width);
    add(&out.uncancelled[c.v().at(b, s, kv)], weight[s] / sum, g, width);
    const double both[2] = {dot(g, v, width) - e, dot(g, v, width)};
    for (const int which : {0, 1}) {
      std::vector<double>& to = which == 0 ? out.gradient : out.uncancelled;
      for (int64_t i = 0; i < groups; ++i) {
        const double r = scale * dot(q + i * part, k + i * part, part);
        const double d = scale * both[which] / sum * (score == Score::softmax ? weight[s] : 2 * r);
        add(&to[c.q().at(b, t, h) + i * part], d, k + i * part, part);
        add(&to[c.k().at(b, s, kv) + i * part], d, q + i * part, part);
      }
    }
  }
}

std::vector<bf16> rounded(const std::vector<double>& x) {
  std::vector<bf16> y;
  for (const double v : x) y.push_back(to_bf16(static_cast<float>(v)));
  return y;
}
std::vector<double> widened(const std::vector<bf16>& x) {
  std::vector<double> y;
  for (const bf16 v : x) y.push_back(static_cast<double>(to_float(v)));
  return y;
}

template <class T>
struct OnDevice {
  explicit OnDevice(const std::vector<T>& x) : count(x.size()), memory(device_memory(x.size() * sizeof(T))) {
    test::test_gpu()->upload(memory.get(), x.data(), x.size() * sizeof(T));
    test::test_gpu()->synchronise();
  }
  T* data() const { return static_cast<T*>(memory.get()); }
  std::vector<T> host() const {
    std::vector<T> x(count);
    test::test_gpu()->download(x.data(), memory.get(), count * sizeof(T));
    test::test_gpu()->synchronise();
    return x;
  }
  size_t count;
  std::unique_ptr<void, FreeDevice> memory;
};

struct Bits {
  std::vector<bf16> o, gradient;
  std::vector<float> statistic;
  bool operator==(const Bits& other) const {
    const auto same = [](const auto& a, const auto& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
    };
    return same(o, other.o) && same(gradient, other.gradient) && same(statistic, other.statistic);
  }
};

template <Score score>
Bits on_device(const Case& c, float scale, const std::vector<bf16>& fused, const std::vector<bf16>& d_o,
               bool backward) {
  const bf16 nan = {0x7FFF};
  const OnDevice<bf16> in(fused), grad_in(d_o), o(std::vector<bf16>(c.o_count(), nan)),
      gradient(std::vector<bf16>(c.fused_count(), nan));
  const OnDevice<float> statistic(std::vector<float>(c.rows(), NAN));
  const OnDevice<uint8_t> scratch(
      std::vector<uint8_t>(static_cast<size_t>(cuda::sm90::attention_backward_scratch(c.size())), 0xFF));
  const GpuStream stream = test::test_gpu()->stream();
  const bf16 *x = in.data(), *g = grad_in.data(), *out = o.data();
  cuda::sm90::attention_forward<score>(
      stream, {c.o().view(o.data()), statistic.data(), c.q().view(x), c.k().view(x), c.v().view(x)}, scale,
      c.size());
  test::test_gpu()->synchronise();
  if (backward)
    cuda::sm90::attention_backward<score>(
        stream,
        {c.q().view(gradient.data()), c.k().view(gradient.data()), c.v().view(gradient.data()), c.o().view(g),
         c.q().view(x), c.k().view(x), c.v().view(x), c.o().view(out), statistic.data(), scratch.data()},
        scale, c.size());
  test::test_gpu()->synchronise();
  return {o.host(), gradient.host(), statistic.host()};
}

// The relative Frobenius error over heads of one part; `floor`: a norm that it is relative to at least.
void expect_close(const char* name, const Case& c, const Layout& part, int64_t heads,
                  const std::vector<double>& found, const std::vector<double>& expected, double tolerance,
                  const std::vector<double>* floor = nullptr) {
  double difference = 0, norm = 0, least = 0;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t t = 0; t < c.tokens; ++t)
      for (int64_t i = part.at(b, t, 0); i < part.at(b, t, heads); ++i) {
        difference += (found[i] - expected[i]) * (found[i] - expected[i]);
        norm += expected[i] * expected[i];
        if (floor != nullptr) least += (*floor)[i] * (*floor)[i];
      }
  EXPECT_LE(std::sqrt(difference), tolerance * std::sqrt(std::max(norm, least))) << name;  // not for a NaN
}

template <Score score>
void check_case(const Case& c, bool backward) {
  SCOPED_TRACE(fmt::format("batch {} tokens {} heads {} of {}, {} groups{}", c.batch, c.tokens, c.heads,
                           c.kv_heads, groups_of(score), score == Score::softmax ? ", softmax" : ""));
  // A common part in all queries and keys keeps masses away from zero, where gradients are noise.
  std::vector<double> x = test::random_normal(c.fused_count(), 1);
  for (size_t i = 0; i < x.size(); ++i)
    if (static_cast<int64_t>(i) % c.fused() < c.v().column) x[i] = 0.6 * x[i] + 0.5;
  const std::vector<bf16> fused = rounded(x), d_o = rounded(test::random_normal(c.o_count(), 2));
  const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(width) / groups_of(score)));
  const Bits found = on_device<score>(c, scale, fused, d_o, backward);
  EXPECT_TRUE(found == on_device<score>(c, scale, fused, d_o, backward)) << "differs from run to run";

  const std::vector<double> zero(c.fused_count());
  Outcome expected = {std::vector<double>(c.o_count()), std::vector<double>(c.rows()), zero, zero};
  const std::vector<double> in = widened(fused), g = widened(d_o);
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t t = 0; t < c.tokens; ++t)
      for (int64_t h = 0; h < c.heads; ++h)
        expect_row(expected, c, score, static_cast<double>(scale), in, g, b, t, h);

  expect_close("o", c, c.o(), c.heads, widened(found.o), expected.o, 3.5e-3);
  for (size_t i = 0; i < c.rows(); ++i)
    ASSERT_NEAR(found.statistic[i], expected.statistic[i], 2e-5 * std::abs(expected.statistic[i]) + 1e-5);
  if (!backward) return;
  // The gradient of the only token's score is a difference of equal numbers.
  const std::vector<double>* floor = c.tokens == 1 ? &expected.uncancelled : nullptr;
  const std::vector<double> gradient = widened(found.gradient);
  expect_close("dq", c, c.q(), c.heads, gradient, expected.gradient, 7e-3, floor);
  expect_close("dk", c, c.k(), c.kv_heads, gradient, expected.gradient, 7e-3, floor);
  expect_close("dv", c, c.v(), c.kv_heads, gradient, expected.gradient, 7e-3, floor);
}

const std::vector<Case> cases = {{1, 1, 1, 1},   {2, 1, 3, 1},   {1, 64, 1, 1},
                                 {2, 65, 2, 2},  {1, 127, 2, 1}, {2, 128, 1, 1},
                                 {2, 200, 3, 3}, {1, 513, 3, 1}, {1, 1000, 2, 1}};

class CudaSm90Attention : public test::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && !cuda::sm90::available()) GTEST_SKIP() << "needs compute capability 9.0";
  }
  template <Score score>
  static void all(bool backward) {
    for (const Case& c : cases) check_case<score>(c, backward);
  }
};

TEST_F(CudaSm90Attention, SoftmaxForward) {
  all<Score::softmax>(false);
}
TEST_F(CudaSm90Attention, Psd1Forward) {
  all<Score::psd1>(false);
}
TEST_F(CudaSm90Attention, Psd2Forward) {
  all<Score::psd2>(false);
}
TEST_F(CudaSm90Attention, Psd4Forward) {
  all<Score::psd4>(false);
}
TEST_F(CudaSm90Attention, SoftmaxBackward) {
  all<Score::softmax>(true);
}
TEST_F(CudaSm90Attention, Psd1Backward) {
  all<Score::psd1>(true);
}
TEST_F(CudaSm90Attention, Psd2Backward) {
  all<Score::psd2>(true);
}
TEST_F(CudaSm90Attention, Psd4Backward) {
  all<Score::psd4>(true);
}

// More pieces of work than multiprocessors: every block takes several, and the ring goes round.
TEST_F(CudaSm90Attention, ManyPieces) {
  check_case<Score::psd1>({1, 200, 160, 160}, true);
  check_case<Score::softmax>({1, 200, 160, 80}, true);
}

}  // namespace
}  // namespace kata
