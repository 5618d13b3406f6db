#include "ops/short_conv.h"

#include "ops/documents_support.h"
#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
class CudaShortConv : public test::GpuTest {};

// Gradients of the parameters are sums over all tokens, of which nothing is rounded to 16 bits.
constexpr GpuTrial::Tolerance sums{1e-5, 1e-5};

struct Problem {
  int64_t batch, time, channels, taps;
  bool bias = false, documents = false;

  Shape x() const { return {batch, time, channels}; }
  Shape window() const { return {batch, taps - 1, channels}; }
  std::string name() const {
    return fmt::format("{} x {} x {}, {} taps{}{}", batch, time, channels, taps, bias ? ", bias" : "",
                       documents ? ", documents" : "");
  }
};

// At least 8 tokens; documents shorter than the filter, and one across the ends of the kernel's runs.
std::vector<int32_t> starts_of(const Problem& p) {
  return test::starts_of_rows(p.batch, p.time, {1, 2, p.time / 2, p.time - 3 - p.time / 2});
}

Tensor given(GpuTrial::Tensors& t, bool is, const std::string& name) {
  return is ? t.at(name) : Tensor();
}

GpuTrial trial_of(const Problem& p) {
  GpuTrial trial;
  trial.data("x", p.x()).wide("weight", {p.channels, p.taps}, 0.5).result("y", p.x());
  if (p.bias) trial.wide("bias", {p.channels});
  return trial;
}

void both_passes(const Problem& p) {
  SCOPED_TRACE(p.name());
  GpuTrial trial = trial_of(p);
  trial.data("dy", p.x()).result("dx", p.x());
  trial.wide_result("dweight", {p.channels, p.taps}).tolerance("dweight", sums);
  trial.fill("dweight", test::random_normal(static_cast<size_t>(p.channels * p.taps), 90));
  if (p.bias) {
    trial.wide_result("dbias", {p.channels}).tolerance("dbias", sums);
    trial.fill("dbias", test::random_normal(static_cast<size_t>(p.channels), 91));
  }
  if (p.documents) trial.ids("starts", {p.batch, p.time}, starts_of(p));
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
    const Tensor bias = given(t, p.bias, "bias"), dbias = given(t, p.bias, "dbias");
    const Tensor starts = given(t, p.documents, "starts");
    short_conv_forward(ctx, t["y"], t["x"], t["weight"], bias, starts);
    short_conv_backward(ctx, t["dx"], t["dweight"], t["dy"], t["x"], t["weight"], bias, dbias, starts);
  });
}

// The kernels walk runs of 32 tokens forward and 64 backward; 24 channels are packs in both types, 12 in
// fp32 alone, and more than 4 taps allow none.
TEST_F(CudaShortConv, TapsAndLengths) {
  for (const int64_t taps : {1, 3, 4, 7})
    for (const int64_t time : {1, 2, 31, 33, 64, 65, 130})
      for (const int64_t channels : {1, 6, 24}) both_passes({2, time, channels, taps});
}

TEST_F(CudaShortConv, Bias) {
  for (const int64_t taps : {1, 4, 7})
    for (const int64_t channels : {6, 12, 24}) both_passes({3, 70, channels, taps, true});
}

TEST_F(CudaShortConv, Documents) {
  for (const int64_t taps : {1, 3, 4, 7})
    for (const int64_t time : {8, 64, 130})
      for (const int64_t channels : {6, 24}) both_passes({4, time, channels, taps, true, true});
}

TEST_F(CudaShortConv, ManyChannelsAndMostTaps) {
  both_passes({2, 100, 1024, 4});
  both_passes({1, 40, 10, short_conv_max_taps, true});
}

// silu'(z) far out on both sides.
TEST_F(CudaShortConv, LargeInputs) {
  const Problem p{2, 66, 24, 4};
  GpuTrial trial = trial_of(p);
  trial.fill("x", test::random_normal(static_cast<size_t>(p.x().numel()), 7, 300));
  trial.data("dy", p.x()).result("dx", p.x());
  trial.wide_result("dweight", {p.channels, p.taps}).tolerance("dweight", sums);
  trial.fill("dweight", std::vector<double>(static_cast<size_t>(p.channels * p.taps), 0));
  trial.run([](Context& ctx, GpuTrial::Tensors& t) {
    short_conv_forward(ctx, t["y"], t["x"], t["weight"]);
    short_conv_backward(ctx, t["dx"], t["dweight"], t["dy"], t["x"], t["weight"]);
  });
}

// The first row's document began one token before the call, the second's long before, and the third's with
// it; in the first another one follows.
std::vector<int32_t> carried_starts(const Problem& p) {
  std::vector<int32_t> starts;
  for (const int32_t first : {-1, -100, 0})
    for (int64_t t = 0; t < p.time; ++t)
      starts.push_back(first == -1 && t >= (p.time + 1) / 2 ? static_cast<int32_t>((p.time + 1) / 2) : first);
  return starts;
}

// A window is carried in, taken out anew, and moved on in place: copies, so that no digit may differ.
TEST_F(CudaShortConv, WindowsInAndOut) {
  for (const int64_t taps : {1, 3, 4, 7})
    for (const int64_t time : {1, 2, 5, 33})
      for (const bool documents : {false, true}) {
        const Problem p{3, time, 24, taps, true, documents};
        SCOPED_TRACE(p.name());
        GpuTrial trial = trial_of(p);
        trial.data("before", p.window()).result("after", p.window()).result("alone", p.window());
        trial.result("moved", p.window());
        trial.fill("moved", test::random_normal(static_cast<size_t>(p.window().numel()), 92));
        for (const char* name : {"after", "alone", "moved"}) trial.tolerance(name, {0, 0});
        if (documents) trial.ids("starts", {p.batch, p.time}, carried_starts(p));
        trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
          const Tensor starts = given(t, documents, "starts");
          short_conv_forward(ctx, t["y"], t["x"], t["weight"], t["bias"], starts, t["before"]);
          short_conv_window(ctx, t["after"], t["x"], starts, t["before"]);
          short_conv_window(ctx, t["alone"], t["x"], starts);
          short_conv_window(ctx, t["moved"], t["x"], starts, t["moved"]);
        });
      }
}

TEST_F(CudaShortConv, Steps) {
  const int64_t steps = 5, batch = 3, channels = 6;
  for (const int64_t taps : {1, 3, 4, 7})
    for (const bool with_bias : {false, true}) {
      SCOPED_TRACE(fmt::format("{} taps{}", taps, with_bias ? ", bias" : ""));
      const Shape window{batch, taps - 1, channels};
      GpuTrial trial;
      trial.data("x", {steps, batch * channels}).wide("weight", {channels, taps}, 0.5);
      trial.result("y", {steps, batch * channels}).result("window", window).tolerance("window", {0, 0});
      trial.fill("window", test::random_normal(static_cast<size_t>(window.numel()), 93));
      if (with_bias) trial.wide("bias", {channels});
      trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
        const auto at = [&](const Tensor& x, int64_t i) { return x.rows(i, i + 1).view({batch, channels}); };
        for (int64_t i = 0; i < steps; ++i)
          short_conv_step(ctx, at(t["y"], i), at(t["x"], i), t["window"], t["weight"],
                          given(t, with_bias, "bias"));
      });
    }
}

}  // namespace
}  // namespace kata
