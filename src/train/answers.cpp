#include "train/answers.h"

namespace kata {

namespace {

// The tensor where the model computes.
Tensor placed(Context& ctx, const char* name, const Tensor& host) {
  if (ctx.device == Device::cpu || !host.defined()) return host;
  const Tensor copy = ctx.arena.take(name, host.dtype(), host.shape());
  if (!ctx.planning()) ctx.gpu->upload(copy.data(), host.data(), host.bytes());
  return copy;
}

template <class To, class From>
void read_back(Context& ctx, std::vector<To>& to, const Tensor& from) {
  to.resize(static_cast<size_t>(from.numel()));
  if (ctx.device == Device::cpu) {
    std::copy_n(from.as<From>(), from.numel(), to.data());
    return;
  }
  std::vector<From> host(to.size());
  ctx.gpu->download(host.data(), from.data(), from.bytes());
  ctx.gpu->synchronise();
  std::copy_n(host.data(), host.size(), to.data());
}

}  // namespace

void answer(LanguageModel& model, Context& ctx, const Tensor& inputs, const Tensor& targets,
            const Tensor& starts, Answers& answers) {
  Arena::Scope scope(ctx.arena);
  const Shape tokens{inputs.numel()};
  const Tensor losses = ctx.arena.take("losses", model.parameters().master_dtype(), tokens);
  const Tensor predictions = ctx.arena.take("predictions", DType::i32, tokens);
  model.evaluate(ctx, losses, predictions, placed(ctx, "input ids", inputs),
                 placed(ctx, "target ids", targets), placed(ctx, "document starts", starts));
  if (ctx.planning()) return;
  dispatch_float(losses.dtype(), [&]<class T>() { read_back<double, T>(ctx, answers.losses, losses); });
  read_back<int32_t, int32_t>(ctx, answers.predictions, predictions);
}

}  // namespace kata
