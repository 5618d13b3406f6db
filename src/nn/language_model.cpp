#include "nn/language_model.h"

#include <algorithm>
#include <cstring>

#include "ops/cross_entropy.h"
#include "ops/embedding.h"

namespace kata {

namespace {
constexpr double deviation = 0.02;
}

LanguageModel::LanguageModel(const ModelConfig& config, DType dtype, bool recompute)
    : config_(config),
      dtype_(dtype),
      recompute_(recompute),
      parameters_(dtype),
      embedding_(
          parameters_.add("embedding.weight", {config.vocab, config.hidden}, Init::normal(deviation), true)),
      blocks_([&] {
        std::vector<std::unique_ptr<Block>> blocks;
        for (int64_t i = 0; i < config.layers; ++i)
          blocks.push_back(std::make_unique<Block>(parameters_, "blocks." + std::to_string(i), config,
                                                   config.mixers[static_cast<size_t>(i)]));
        return blocks;
      }()),
      norm_(parameters_, "norm", config.hidden) {
  if (!config.tie_embeddings)
    head_ = &parameters_.add("head.weight", {config.vocab, config.hidden}, Init::normal(deviation), true);
  parameters_.bind({}, {});
}

void LanguageModel::forward_backward(Context& ctx, const Tensor& losses, const Tensor& inputs,
                                     const Tensor& targets, double scale, const Tensor& starts,
                                     int64_t scored_bound) {
  Arena::Scope scope(ctx.arena);
  const Sequence sequence{inputs.dim(0), inputs.dim(1), starts};
  const Shape tokens{sequence.tokens()}, hidden{sequence.tokens(), config_.hidden};

  std::vector<Tensor> x;  // the residual stream before each block, and after the last
  for (size_t i = 0; i <= blocks_.size(); ++i) x.push_back(ctx.arena.take("residual stream", dtype_, hidden));
  embedding_forward(ctx, x[0], embedding_.value, inputs.view(tokens));
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (recompute_) {
      Arena::Scope inside(ctx.arena);
      blocks_[i]->forward(ctx, x[i + 1], x[i], sequence);
    } else {
      blocks_[i]->forward(ctx, x[i + 1], x[i], sequence);
    }
  }

  const Tensor d = ctx.arena.take("residual gradient", dtype_, hidden);
  {
    Arena::Scope inside(ctx.arena);
    const Tensor normed = ctx.arena.take("final normed", dtype_, hidden);
    const Tensor dnormed = ctx.arena.take("final normed gradient", dtype_, hidden);
    norm_.forward(ctx, normed, x.back());
    cross_entropy_backward(ctx, losses, dnormed, classifier_gradient(), normed, classifier(),
                           targets.view(tokens), scale, scored_bound);
    norm_.backward(ctx, d, dnormed, x.back(), false);
  }
  for (size_t i = blocks_.size(); i-- > 0;) {
    Arena::Scope inside(ctx.arena);
    if (recompute_) blocks_[i]->forward(ctx, x[i + 1], x[i], sequence);
    blocks_[i]->backward(ctx, d, x[i], sequence);
  }
  embedding_backward(ctx, embedding_.gradient, d, inputs.view(tokens));
}

void LanguageModel::evaluate(Context& ctx, const Tensor& losses, const Tensor& predictions,
                             const Tensor& inputs, const Tensor& targets, const Tensor& starts) {
  Arena::Scope scope(ctx.arena);
  const Sequence sequence{inputs.dim(0), inputs.dim(1), starts};
  const Shape tokens{sequence.tokens()}, hidden{sequence.tokens(), config_.hidden};
  Tensor x = ctx.arena.take("residual stream", dtype_, hidden);
  Tensor y = ctx.arena.take("residual stream", dtype_, hidden);
  embedding_forward(ctx, x, embedding_.value, inputs.view(tokens));
  for (const auto& block : blocks_) {
    Arena::Scope inside(ctx.arena);
    block->forward(ctx, y, x, sequence);
    std::swap(x, y);
  }
  norm_.forward(ctx, y, x);
  cross_entropy_forward(ctx, losses, predictions, y, classifier(), targets.view(tokens));
}

void clear(DecodeState& state) {
  state.position = 0;
  std::vector<Tensor> all{state.first};
  for (const MixerState& layer : state.layers)
    all.insert(all.end(), {layer.window, layer.memory, layer.keys, layer.values});
  for (const Tensor& t : all)
    if (t.defined() && t.data() != nullptr) std::memset(t.data(), 0, t.bytes());
}

DecodeState LanguageModel::take_state(Arena& arena, int64_t batch, int64_t capacity) const {
  DecodeState state;
  state.batch = batch;
  state.capacity = capacity;
  state.first = arena.take("first tokens", DType::i32, {batch});
  for (const auto& block : blocks_) state.layers.push_back(block->take_state(arena, batch, capacity));
  clear(state);
  return state;
}

namespace {

// Where rows of different lengths begin, counted from the first of `time` more tokens: what stands before a
// sequence is a document of its own. Undefined where all rows begin at token 0.
Tensor take_starts(Context& ctx, const DecodeState& state, int64_t time) {
  const bool planning = ctx.planning();
  const int32_t* first = planning ? nullptr : state.first.as<int32_t>();
  const Tensor starts = ctx.arena.take("document starts", DType::i32, {state.batch, time});
  if (planning) return starts;
  if (std::all_of(first, first + state.batch, [](int32_t at) { return at == 0; })) return {};
  for (int64_t b = 0; b < state.batch; ++b)
    for (int64_t t = 0; t < time; ++t) {
      const bool inside = state.position + t >= first[b];
      starts.as<int32_t>()[b * time + t] = static_cast<int32_t>((inside ? first[b] : 0) - state.position);
    }
  return starts;
}

}  // namespace

void LanguageModel::prefill(Context& ctx, const Tensor& logits, const Tensor& tokens, DecodeState& state) {
  Arena::Scope scope(ctx.arena);
  const Sequence sequence{state.batch, tokens.dim(1), take_starts(ctx, state, tokens.dim(1)), state.position};
  const Shape hidden{sequence.tokens(), config_.hidden};
  Tensor x = ctx.arena.take("residual stream", dtype_, hidden);
  Tensor y = ctx.arena.take("residual stream", dtype_, hidden);
  embedding_forward(ctx, x, embedding_.value, tokens.view({sequence.tokens()}));
  for (size_t i = 0; i < blocks_.size(); ++i) {
    blocks_[i]->prefill(ctx, y, x, sequence, state.layers[i]);
    std::swap(x, y);
  }
  // The last token of every row.
  const Tensor last = x.view({state.batch, sequence.time * config_.hidden})
                          .columns((sequence.time - 1) * config_.hidden, sequence.time * config_.hidden);
  const Tensor normed = ctx.arena.take("final normed", dtype_, {state.batch, config_.hidden});
  norm_.forward(ctx, normed, last);
  matmul_forward(ctx, logits, normed, classifier());
  state.position += sequence.time;
}

void LanguageModel::step(Context& ctx, const Tensor& logits, const Tensor& tokens, DecodeState& state) {
  Arena::Scope scope(ctx.arena);
  const Shape hidden{state.batch, config_.hidden};
  Tensor x = ctx.arena.take("residual stream", dtype_, hidden);
  Tensor y = ctx.arena.take("residual stream", dtype_, hidden);
  embedding_forward(ctx, x, embedding_.value, tokens);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    blocks_[i]->step(ctx, y, x, state.layers[i], {state.position, state.first});
    std::swap(x, y);
  }
  norm_.forward(ctx, y, x);
  matmul_forward(ctx, logits, y, classifier());
  ++state.position;
}

int64_t LanguageModel::state_entries(int64_t length) const {
  int64_t sum = 0;
  for (const auto& block : blocks_) sum += block->state_entries(length);
  return sum;
}

int64_t LanguageModel::operations(int64_t length) const {
  int64_t sum = 2 * config_.vocab * config_.hidden;
  for (const auto& block : blocks_) sum += block->operations(length);
  return sum;
}

}  // namespace kata
