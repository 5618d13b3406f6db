// Attention on the tensor cores of any card against the CPU ops in double. The kernels are called directly,
// so that Hopper's own do not step in, on views of heads inside wider rows; bf16 only.
#include "kernels/common/mma_attention.h"

#include "kernels/chunk_trial.h"
#include "ops/softmax_attention.h"

namespace kata {
namespace {

using namespace test;
using cuda::TileScore;
class CudaMmaAttention : public GpuTest {};

const std::vector<int64_t> lengths = {1, 17, 64, 65, 200, 513}, widths = {32, 64, 128};

// o: weights and the result are rounded. Gradients go through products of rounded numbers and read the
// rounded o, a difference from which is the gradient of a score. Masses are sums of unrounded weights.
constexpr GpuTrial::Tolerance any{INFINITY, INFINITY};
constexpr double values = 5e-3, gradients = 2e-2, decay_gradients = 1e-2;

// q, k and v of `heads` and `kv_heads` in rows of x, o in rows that begin 8 elements early.
struct Layout {
  int64_t batch, tokens, heads, kv_heads, width;
  Shape fused() const { return {batch, tokens, (heads + 2 * kv_heads) * width + 8}; }
  Shape out() const { return {batch, tokens, heads * width + 8}; }
  Shape row() const { return {batch, tokens, heads}; }

  Tensor part(const Tensor& x, int64_t first, int64_t count) const {
    return x.columns(first * width, (first + count) * width).split_last(count, width);
  }
  Tensor q(const Tensor& x) const { return part(x, 0, heads); }
  Tensor k(const Tensor& x) const { return part(x, heads, kv_heads); }
  Tensor v(const Tensor& x) const { return part(x, heads + kv_heads, kv_heads); }
  Tensor o(const Tensor& x) const { return x.columns(8, 8 + heads * width).split_last(heads, width); }

  // Queries and keys times `scale`, and `shared` added to them first.
  std::vector<double> numbers(double scale, double deviation, double shared) const {
    std::vector<double> x = random_normal(test::count(fused()), 3);
    const int64_t row = fused()[2];
    for (size_t i = 0; i < x.size(); ++i)
      if (static_cast<int64_t>(i) % row < (heads + kv_heads) * width)
        x[i] = scale * (deviation * x[i] + shared);
    return x;
  }
  void operands(GpuTrial& trial, const std::vector<double>& x) const {
    trial.data("x", fused()).fill("x", x).data("d_o", out());
    trial.result("o", out()).tolerance("o", {values, values});
    for (const char* name : {"dq", "dk", "dv"}) trial.result(name, fused());
    trial.tolerance("dv", {values, values});
    // With one token a score's gradient is 0, and what is left is rounding.
    for (const char* name : {"dq", "dk"})
      trial.tolerance(name, tokens == 1 ? any : GpuTrial::Tolerance{gradients, gradients});
  }
};

Tensor take_scratch(Context& ctx, bool backward, const AttentionSize& size) {
  return ctx.arena.take("scratch", DType::f32, {cuda::mma_attention_scratch(backward, size)});
}

template <TileScore score>
void forward_on_gpu(Context& ctx, const Tensor& o, const Tensor& statistic, const Tensor& q, const Tensor& k,
                    const Tensor& v, double scale, const LogDecay<float>& decay, int64_t first_query = 0) {
  const AttentionSize size = {q.dim(0), q.dim(1), q.dim(2), k.dim(2), q.dim(3), v.dim(3)};
  const Arena::Scope scope(ctx.arena);
  const Tensor scratch = take_scratch(ctx, false, size);
  if (ctx.planning()) return;
  cuda::mma_attention_forward<score>(
      ctx.stream(),
      {token_heads<bf16>(o), data_or_null<float>(statistic), token_heads<const bf16>(q),
       token_heads<const bf16>(k), token_heads<const bf16>(v), decay, first_query, scratch.as<float>()},
      static_cast<float>(scale), size);
}

struct Gradients {
  Tensor dq, dk, dv, dlog = {};
};
template <TileScore score>
void backward_on_gpu(Context& ctx, const Gradients& to, const Tensor& d_o, const Tensor& q, const Tensor& k,
                     const Tensor& v, const Tensor& o, const Tensor& statistic, double scale,
                     const LogDecay<float>& decay) {
  const AttentionSize size = {q.dim(0), q.dim(1), q.dim(2), k.dim(2), q.dim(3), v.dim(3)};
  const Arena::Scope scope(ctx.arena);
  const Tensor scratch = take_scratch(ctx, true, size);
  if (ctx.planning()) return;
  cuda::mma_attention_backward<score>(
      ctx.stream(),
      {token_heads<bf16>(to.dq), token_heads<bf16>(to.dk), token_heads<bf16>(to.dv),
       token_heads<const bf16>(d_o), token_heads<const bf16>(q), token_heads<const bf16>(k),
       token_heads<const bf16>(v), token_heads<const bf16>(o), data_or_null<float>(statistic), decay,
       data_or_null<float>(to.dlog), scratch.as<float>()},
      static_cast<float>(scale), size);
}

// --- softmax ---

struct SoftmaxProblem {
  int64_t batch, tokens, heads, kv_heads, width;
  bool documents = false;
  double magnitude = 1;
};

// Documents of 40 tokens, each batch row shifted by 7.
std::vector<int32_t> document_starts(int64_t batch, int64_t tokens) {
  std::vector<int32_t> starts;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < tokens; ++t)
      starts.push_back(static_cast<int32_t>(std::max<int64_t>(0, (t + 7 * b) / 40 * 40 - 7 * b)));
  return starts;
}

void run_softmax(const SoftmaxProblem& p) {
  SCOPED_TRACE(fmt::format("softmax B {} T {} H {}/{} d {}{} magnitude {}", p.batch, p.tokens, p.heads,
                           p.kv_heads, p.width, p.documents ? " documents" : "", p.magnitude));
  const Layout layout = {p.batch, p.tokens, p.heads, p.kv_heads, p.width};
  const double scale = 1 / std::sqrt(static_cast<double>(p.width));
  GpuTrial trial;
  layout.operands(trial, layout.numbers(p.magnitude, 1, 0));
  trial.wide_result("lse", layout.row()).tolerance("lse", {1e-5, 1e-5});
  // Where one key has all the weight, score gradients are differences of equal numbers.
  if (p.magnitude > 4) trial.tolerance("dq", any).tolerance("dk", any);
  if (p.documents) trial.ids("starts", {p.batch, p.tokens}, document_starts(p.batch, p.tokens));
  trial.run(
      [&](Context& ctx, GpuTrial::Tensors& t) {
        const Tensor q = layout.q(t["x"]), k = layout.k(t["x"]), v = layout.v(t["x"]), o = layout.o(t["o"]);
        const Tensor d_o = layout.o(t["d_o"]), dq = layout.q(t["dq"]), dk = layout.k(t["dk"]),
                     dv = layout.v(t["dv"]);
        const Tensor starts = optional(t, "starts");
        if (ctx.device == Device::cuda) {
          const LogDecay<float> documents = {nullptr, starts_of(starts)};
          forward_on_gpu<TileScore::softmax>(ctx, o, t["lse"], q, k, v, scale, documents);
          backward_on_gpu<TileScore::softmax>(ctx, {dq, dk, dv}, d_o, q, k, v, o, t["lse"], scale, documents);
          return;
        }
        softmax_attention_forward(ctx, o, t["lse"], q, k, v, scale, starts);
        softmax_attention_backward(ctx, dq, dk, dv, d_o, q, k, v, o, t["lse"], scale, starts);
      },
      DType::bf16);
}

TEST_F(CudaMmaAttention, SoftmaxOfEveryLengthAndWidth) {
  for (const int64_t tokens : lengths)
    for (const int64_t width : widths)
      run_softmax({tokens < 200 ? 2 : 1, tokens, 3, tokens == 65 ? 3 : 1, width});
}
TEST_F(CudaMmaAttention, SoftmaxInDocuments) {
  for (const int64_t width : widths)
    for (const int64_t tokens : {17, 65, 200}) run_softmax({2, tokens, 2, 1, width, true});
  run_softmax({1, 513, 1, 1, 64, true});
}
TEST_F(CudaMmaAttention, SoftmaxOfAnyMagnitude) {
  for (const int64_t width : widths)
    for (const double magnitude : {1e-3, 3.0, 30.0, 1e3})
      run_softmax({1, 100, 1, 1, width, false, magnitude});
}

// Queries at the end of a cache, whose rows are wider than the keys.
TEST_F(CudaMmaAttention, SoftmaxOverACache) {
  for (const int64_t width : widths)
    for (const auto& [keys, before] : {std::pair<int64_t, int64_t>{90, 37}, {300, 171}, {200, 199}})
      for (const bool documents : {false, true}) {
        SCOPED_TRACE(
            fmt::format("{} of {} keys, width {}, documents {}", keys - before, keys, width, documents));
        const int64_t batch = 2, heads = 4, kv_heads = 2;
        const Layout layout = {batch, keys, heads, kv_heads, width};
        const Shape rows{batch, keys - before, heads, width};
        GpuTrial trial;
        trial.data("x", layout.fused()).data("q", rows).result("o", rows).tolerance("o", {values, values});
        trial.wide_result("lse", {batch, keys - before, heads}).tolerance("lse", {1e-5, 1e-5});
        if (documents) {  // of the queries, counted from the first of them
          std::vector<int32_t> starts;
          const std::vector<int32_t> all = document_starts(batch, keys);
          for (int64_t b = 0; b < batch; ++b)
            for (int64_t t = before; t < keys; ++t)
              starts.push_back(all[static_cast<size_t>(b * keys + t)] - static_cast<int32_t>(before));
          trial.ids("starts", {batch, keys - before}, starts);
        }
        trial.run(
            [&](Context& ctx, GpuTrial::Tensors& t) {
              const Tensor k = layout.k(t["x"]), v = layout.v(t["x"]), starts = optional(t, "starts");
              if (ctx.device == Device::cuda)
                return forward_on_gpu<TileScore::softmax>(ctx, t["o"], t["lse"], t["q"], k, v, 0.2,
                                                          {nullptr, starts_of(starts)}, before);
              softmax_attention_forward(ctx, t["o"], t["lse"], t["q"], k, v, 0.2, starts, before);
            },
            DType::bf16);
      }
}

// --- psd ---

template <TileScore score>
void psd_on_gpu(Context& ctx, GpuTrial::Tensors& t, const Layout& layout, const LinearProblem& p) {
  const Tensor q = layout.q(t["x"]), k = layout.k(t["x"]), v = layout.v(t["x"]), o = layout.o(t["o"]);
  const LogDecay<float> decay = log_decay_of<float>(decay_of(t), p.size());
  const Tensor mass = optional(t, "mass");
  forward_on_gpu<score>(ctx, o, mass, q, k, v, p.map.sigma(), decay);
  backward_on_gpu<score>(ctx, {layout.q(t["dq"]), layout.k(t["dk"]), layout.v(t["dv"]), optional(t, "dlog")},
                         layout.o(t["d_o"]), q, k, v, o, mass, p.map.sigma(), decay);
}

void psd_on_cpu(Context& ctx, GpuTrial::Tensors& t, const Layout& layout, const LinearProblem& p) {
  const LinearAttention settings = settings_of(p, quadratic_form);
  const Tensor q = layout.q(t["x"]), k = layout.k(t["x"]), v = layout.v(t["x"]), o = layout.o(t["o"]);
  const Tensor mass = optional(t, "mass");
  linear_attention_forward(ctx, o, mass, q, k, v, settings, {}, {}, decay_of(t));
  linear_attention_backward(ctx, layout.q(t["dq"]), layout.k(t["dk"]), layout.v(t["dv"]), layout.o(t["d_o"]),
                            q, k, v, o, mass, settings, decay_of(t), optional(t, "dlog"));
}

GpuTrial psd_trial(const LinearProblem& p, const Layout& layout) {
  GpuTrial trial;
  layout.operands(trial, layout.numbers(p.scale, 0.5, 1));
  if (!p.normalised()) trial.tolerance("dq", {values, values}).tolerance("dk", {values, values});
  if (p.normalised()) trial.wide_result("mass", p.mass_shape()).tolerance("mass", {5e-6, 5e-6});
  if (p.documents) trial.ids("starts", {p.batch, p.tokens}, document_starts(p.batch, p.tokens));
  if (!p.decays) return trial;
  trial.wide("log", p.decay_shape()).fill("log", random_decays(test::count(p.decay_shape()), 13));
  return trial.wide_result("dlog", p.decay_shape()).tolerance("dlog", {decay_gradients, decay_gradients});
}

void run_psd(
    const LinearProblem& p, const std::function<void(GpuTrial&)>& prepare = [](GpuTrial&) {}) {
  SCOPED_TRACE(::testing::PrintToString(p));
  const Layout layout = {p.batch, p.tokens, p.heads, p.kv_heads, p.map.width};
  GpuTrial trial = psd_trial(p, layout);
  prepare(trial);
  trial.run(
      [&](Context& ctx, GpuTrial::Tensors& t) {
        if (ctx.device == Device::cpu) return psd_on_cpu(ctx, t, layout, p);
        if (p.map.groups == 1) return psd_on_gpu<TileScore::psd1>(ctx, t, layout, p);
        if (p.map.groups == 2) return psd_on_gpu<TileScore::psd2>(ctx, t, layout, p);
        psd_on_gpu<TileScore::psd4>(ctx, t, layout, p);
      },
      DType::bf16);
}

// Every width with every number of groups.
template <class F>
void for_each_map(F&& f) {
  for (const int64_t width : widths)
    for (const int64_t groups : {1, 2, 4}) f(psd(width, groups));
}

TEST_F(CudaMmaAttention, PsdOfEveryLength) {
  for_each_map([](const FeatureMap& map) {
    for (const int64_t tokens : lengths)
      run_psd({map, Read::normalised, tokens < 200 ? 2 : 1, tokens, 2, tokens == 65 ? 2 : 1, map.width});
  });
}
TEST_F(CudaMmaAttention, PsdRawRead) {
  for_each_map([](const FeatureMap& map) {
    for (const int64_t tokens : {1, 65, 200}) run_psd({map, Read::raw, 1, tokens, 2, 1, map.width});
  });
}
TEST_F(CudaMmaAttention, PsdWithDecayInDocuments) {
  for_each_map([](const FeatureMap& map) {
    for (const Read read : {Read::normalised, Read::raw})
      for (const int64_t tokens : {1, 65, 200})
        for (const auto& [decays, documents] : {std::pair{true, false}, {false, true}, {true, true}})
          run_psd({map, read, 2, tokens, 2, tokens == 200 ? 1 : 2, map.width, 1, decays, documents});
  });
  run_psd({psd(64, 2), Read::normalised, 1, 513, 4, 2, 64, 1, true, true});
}
TEST_F(CudaMmaAttention, PsdOfAnyMagnitude) {
  for_each_map([](const FeatureMap& map) {
    for (const double scale : {1e-3, 30.0, 1e3}) {
      run_psd({map, Read::normalised, 1, 100, 1, 1, map.width, scale});
      run_psd({map, Read::raw, 1, 100, 1, 1, map.width, scale});
    }
  });
}

// Between most tokens nothing is left, and sums of logs are far beyond what exp takes.
TEST_F(CudaMmaAttention, PsdUnderStrongDecay) {
  for_each_map([](const FeatureMap& map) {
    const LinearProblem p{map, Read::normalised, 1, 200, 2, 1, map.width, 1, true, false};
    std::vector<double> logs(test::count(p.decay_shape()), -0.01);
    for (size_t i = 0; i < logs.size(); ++i)
      if (i % 3 == 1) logs[i] = i % 7 == 0 ? -500 : i % 5 == 0 ? -30 : -3;
    run_psd(p, [&](GpuTrial& trial) { trial.fill("log", logs).tolerance("mass", {2e-4, 2e-4}); });
  });
}

// A mass of 0 gives an output and gradients of 0.
TEST_F(CudaMmaAttention, PsdOfZeroKeys) {
  for (const int64_t width : widths) {
    const LinearProblem p{psd(width, 2), Read::normalised, 1, 70, 1, 1, width, 0};
    run_psd(p);
  }
}

// The log of a document's first token is not read.
TEST_F(CudaMmaAttention, PsdLeavesOutTheFirstLog) {
  const LinearProblem p{psd(64, 1), Read::normalised, 1, 130, 1, 1, 64, 1, true, true};
  std::vector<double> logs(test::count(p.decay_shape()), -0.1);
  const std::vector<int32_t> starts = document_starts(p.batch, p.tokens);
  for (size_t t = 0; t < logs.size(); ++t)
    if (starts[t] == static_cast<int32_t>(t)) logs[t] = NAN;
  run_psd(p, [&](GpuTrial& trial) { trial.fill("log", logs); });
}

}  // namespace
}  // namespace kata
