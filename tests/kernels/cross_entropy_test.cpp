#include "ops/cross_entropy.h"

#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
class CudaCrossEntropy : public test::GpuTest {};

struct Problem {
  int64_t rows, width, vocab;
  int64_t every = 1;  // one row in so many is labelled; 0: none
  double scale = 1;   // of the hidden rows
};

int64_t labelled(const Problem& p) {
  return p.every == 0 ? 0 : (p.rows + p.every - 1) / p.every;
}

// Losses of bf16 logits are off by their rounding: 2^-9 of a logit.
GpuTrial trial_of(const Problem& p) {
  GpuTrial trial({4e-6, 6e-3});
  std::vector<int32_t> targets;
  const Philox random(3, stream_test);
  for (int64_t r = 0; r < p.rows; ++r)
    targets.push_back(
        p.every > 0 && r % p.every == 0
            ? static_cast<int32_t>(random.below(static_cast<uint64_t>(r), static_cast<uint64_t>(p.vocab)))
            : -1);
  trial.data("x", {p.rows, p.width}, p.scale)
      .data("table", {p.vocab, p.width}, 0.3)
      .ids("targets", {p.rows}, targets);
  trial.wide_result("losses", {p.rows}).wide_result("losses forward", {p.rows});
  trial.result("dx", {p.rows, p.width}).wide_result("dtable", {p.vocab, p.width});
  trial.fill("dtable", test::random_normal(static_cast<size_t>(p.vocab * p.width), 8, 1e-3));
  return trial;
}

void both(Context& ctx, GpuTrial::Tensors& t, int64_t bound) {
  cross_entropy_forward(ctx, t["losses forward"], {}, t["x"], t["table"], t["targets"], bound);
  cross_entropy_backward(ctx, t["losses"], t["dx"], t["dtable"], t["x"], t["table"], t["targets"], 0.01,
                         bound);
}

TEST_F(CudaCrossEntropy, LossAndGradients) {
  for (const Problem& p :
       {Problem{1, 8, 2}, Problem{5, 16, 19}, Problem{70, 64, 1000}, Problem{300, 32, 256, 7},
        Problem{1030, 16, 48, 1}, Problem{9, 64, 32000, 2}, Problem{40, 24, 40, 0}}) {
    SCOPED_TRACE(fmt::format("{} x {} vocab {} every {}", p.rows, p.width, p.vocab, p.every));
    trial_of(p).run([](Context& ctx, GpuTrial::Tensors& t) { both(ctx, t, -1); });
  }
}

TEST_F(CudaCrossEntropy, ABoundOnTheLabelledRows) {
  const Problem p{500, 32, 64, 9};
  for (const int64_t bound : {labelled(p), labelled(p) + 1, p.rows})
    trial_of(p).run([&](Context& ctx, GpuTrial::Tensors& t) { both(ctx, t, bound); });
}

TEST_F(CudaCrossEntropy, ABoundThatIsTooSmallIsNoResult) {
  const Problem p{100, 16, 32, 3};
  GpuTrial trial;
  trial.data("x", {p.rows, p.width}).data("table", {p.vocab, p.width});
  trial.ids("targets", {p.rows}, std::vector<int32_t>(static_cast<size_t>(p.rows), 1))
      .wide_result("losses", {p.rows});
  trial.run(
      [&](Context& ctx, GpuTrial::Tensors& t) {
        cross_entropy_forward(ctx, t["losses"], {}, t["x"], t["table"], t["targets"],
                              ctx.device == Device::cuda ? 50 : -1);
        // On the CPU the bound is not used: write what the GPU must give.
        if (ctx.device == Device::cpu && !ctx.planning())
          std::fill_n(t["losses"].as<double>(), p.rows, std::nan(""));
      },
      DType::f32);
}

TEST_F(CudaCrossEntropy, LargeLogits) {
  for (const double scale : {1e-6, 40.0})
    trial_of({64, 32, 100, 1, scale}).run([](Context& ctx, GpuTrial::Tensors& t) { both(ctx, t, -1); });
}

// The lowest id among equals; values that 16 bits hold exactly.
TEST_F(CudaCrossEntropy, PredictionsAndTies) {
  const int64_t rows = 33, width = 8, vocab = 2050;
  std::vector<double> x(static_cast<size_t>(rows * width)), table(static_cast<size_t>(vocab * width));
  for (int64_t r = 0; r < rows; ++r) x[static_cast<size_t>(r * width + r % width)] = r % 3 == 0 ? -1 : 1;
  for (int64_t v = 0; v < vocab; ++v)
    for (int64_t c = 0; c < width; ++c)
      table[static_cast<size_t>(v * width + c)] = static_cast<double>((v + c) % 5);
  std::vector<int32_t> targets(static_cast<size_t>(rows), 4);
  targets[5] = -1;
  GpuTrial trial({1e-5, 1e-5});
  trial.data("x", {rows, width}).fill("x", x).data("table", {vocab, width}).fill("table", table);
  trial.ids("targets", {rows}, targets).wide_result("losses", {rows}).id_result("predictions", {rows});
  trial.run([](Context& ctx, GpuTrial::Tensors& t) {
    cross_entropy_forward(ctx, t["losses"], t["predictions"], t["x"], t["table"], t["targets"]);
  });
}

}  // namespace
}  // namespace kata
