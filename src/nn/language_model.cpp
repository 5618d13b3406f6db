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
      norm_(parameters_, "norm", config.hidden, config.norm_eps) {
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

namespace {

// From host memory to the memory of the processor; on a GPU `from` must stay until the queued copy is done.
void send(const Processor& processor, const Tensor& to, const void* from) {
  if (processor.device == Device::cuda)
    processor.gpu->upload(to.data(), from, to.bytes());
  else
    std::memcpy(to.data(), from, to.bytes());
}

// Where the tokens of a piece stand in rows of different lengths.
struct PiecePlaces {
  Tensor starts, positions;  // as in Sequence
};

// What stands before a sequence is a document of its own. Undefined where all rows begin at token 0.
PiecePlaces take_places(Context& ctx, const DecodeState& state, int64_t time) {
  const PiecePlaces places = {ctx.arena.take("document starts", DType::i32, {state.batch, time}),
                              ctx.arena.take("positions", DType::i64, {state.batch * time})};
  if (ctx.planning()) return places;
  const auto is_zero = [](int32_t first) { return first == 0; };
  if (std::all_of(state.first.begin(), state.first.end(), is_zero)) return {};
  std::vector<int32_t> starts;
  std::vector<int64_t> positions;
  for (const int32_t first : state.first)
    for (int64_t t = 0; t < time; ++t) {
      const int64_t start = (state.position + t >= first ? first : 0) - state.position;
      starts.push_back(static_cast<int32_t>(start));
      positions.push_back(t - start);
    }
  send(state.processor, places.starts, starts.data());
  send(state.processor, places.positions, positions.data());
  if (ctx.device == Device::cuda) ctx.gpu->synchronise();  // before the vectors go
  return places;
}

}  // namespace

void clear(DecodeState& state) {
  state.position = 0;
  state.first.assign(static_cast<size_t>(state.batch), 0);
  std::vector<Tensor> all{state.first_there};
  for (const MixerState& layer : state.layers)
    all.insert(all.end(), {layer.window, layer.memory, layer.keys, layer.values});
  for (const Tensor& t : all) {
    if (!t.defined() || t.data() == nullptr) continue;
    if (state.processor.device == Device::cuda)
      state.processor.gpu->zero(t.data(), t.bytes());
    else
      std::memset(t.data(), 0, t.bytes());
  }
}

void set_first(DecodeState& state, std::vector<int32_t> first) {
  KATA_CHECK(state.position == 0 && static_cast<int64_t>(first.size()) == state.batch,
             "{} rows of {} at position {}", first.size(), state.batch, state.position);
  state.first = std::move(first);
  send(state.processor, state.first_there, state.first.data());
}

DecodeState LanguageModel::take_state(Arena& arena, int64_t batch, int64_t capacity,
                                      const Processor& processor) const {
  DecodeState state;
  state.processor = processor;
  state.batch = batch;
  state.capacity = capacity;
  state.first_there = arena.take("first tokens", DType::i32, {batch});
  state.places_there = arena.take("places", DType::i64, {batch + 1});
  for (const auto& block : blocks_) state.layers.push_back(block->take_state(arena, batch, capacity));
  clear(state);
  return state;
}

void LanguageModel::prefill(Context& ctx, const Tensor& logits, const Tensor& tokens, DecodeState& state) {
  Arena::Scope scope(ctx.arena);
  const PiecePlaces places = take_places(ctx, state, tokens.dim(1));
  const Sequence sequence{state.batch, tokens.dim(1), places.starts, state.position, places.positions};
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
  matmul_wide(ctx, logits, normed, classifier());
  state.position += sequence.time;
}

void LanguageModel::step(Context& ctx, const Tensor& logits, const Tensor& tokens, DecodeState& state) {
  send_places(ctx, state);
  step_at_places(ctx, logits, tokens, state);
  ++state.position;
}

void LanguageModel::send_places(Context& ctx, DecodeState& state) const {
  if (ctx.planning()) return;
  state.places.clear();
  for (const int32_t first : state.first) state.places.push_back(state.position - first);
  state.places.push_back(state.position);
  send(state.processor, state.places_there, state.places.data());
}

void LanguageModel::step_at_places(Context& ctx, const Tensor& logits, const Tensor& tokens,
                                   DecodeState& state) {
  Arena::Scope scope(ctx.arena);
  const StepPlace place{
      state.position, state.first_there, state.places_there.rows(0, state.batch),
      ctx.device == Device::cuda ? state.places_there.rows(state.batch, state.batch + 1) : Tensor()};
  const Shape hidden{state.batch, config_.hidden};
  Tensor x = ctx.arena.take("residual stream", dtype_, hidden);
  Tensor y = ctx.arena.take("residual stream", dtype_, hidden);
  embedding_forward(ctx, x, embedding_.value, tokens);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    blocks_[i]->step(ctx, y, x, state.layers[i], place);
    std::swap(x, y);
  }
  norm_.forward(ctx, y, x);
  matmul_wide(ctx, logits, y, classifier());
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
