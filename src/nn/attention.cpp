#include "nn/attention.h"

#include <cmath>

#include "ops/delta_attention.h"
#include "ops/softmax_attention.h"

namespace kata {

namespace {

class SoftmaxAttention : public Attention {
 public:
  explicit SoftmaxAttention(const AttentionHeads& heads)
      : heads_(heads), scale_(1 / std::sqrt(static_cast<double>(heads.width))) {}

  void forward(Context& ctx, const Tensor& o, const AttentionInputs& in, const Sequence& sequence) override {
    lse_ = take_lse(ctx, in);
    softmax_attention_forward(ctx, o, lse_, in.q, in.k, in.v, scale_, sequence.starts);
  }
  void backward(Context& ctx, const AttentionInputs& gradients, const Tensor& d_o, const AttentionInputs& in,
                const Tensor& o, const Sequence& sequence) override {
    softmax_attention_backward(ctx, gradients.q, gradients.k, gradients.v, d_o, in.q, in.k, in.v, o, lse_,
                               scale_, sequence.starts);
  }
  void take_state(Arena& arena, DType dtype, MixerState& state, int64_t batch,
                  int64_t capacity) const override {
    state.keys = arena.take("key cache", dtype, {batch, capacity, heads_.kv_heads, heads_.width});
    state.values = arena.take("value cache", dtype, {batch, capacity, heads_.kv_heads, heads_.value_width});
  }
  void prefill(Context& ctx, const Tensor& o, const AttentionInputs& in, const Sequence& sequence,
               MixerState& state) override {
    const int64_t position = sequence.position, length = position + sequence.time;
    softmax_attention_append(ctx, state.keys, in.k, position);
    softmax_attention_append(ctx, state.values, in.v, position);
    softmax_attention_forward(ctx, o, take_lse(ctx, in), in.q, first_tokens(state.keys, length),
                              first_tokens(state.values, length), scale_, sequence.starts, position);
  }
  void step(Context& ctx, const Tensor& o, const AttentionInputs& in, MixerState& state,
            const StepPlace& place) override {
    softmax_attention_append(ctx, state.keys, in.k, place.position, place.last);
    softmax_attention_append(ctx, state.values, in.v, place.position, place.last);
    softmax_attention_step(ctx, o, in.q, state.keys, state.values, place.position + 1, scale_, place.first,
                           place.last);
  }
  int64_t state_entries(int64_t length) const override {
    return length * heads_.kv_heads * (heads_.width + heads_.value_width);
  }
  int64_t operations(int64_t length) const override {
    return 2 * (length + 1) * heads_.heads * (heads_.width + heads_.value_width);
  }

 private:
  static Tensor take_lse(Context& ctx, const AttentionInputs& in) {
    return ctx.arena.take("softmax log-sum-exp", wide(in.q.dtype()), {in.q.dim(0), in.q.dim(1), in.q.dim(2)});
  }
  static Tensor first_tokens(const Tensor& cache, int64_t length) {
    const int64_t row = cache.dim(2) * cache.dim(3);
    return cache.view({cache.dim(0), cache.dim(1) * row})
        .columns(0, length * row)
        .split_last(length, row)
        .split_last(cache.dim(2), cache.dim(3));
  }

  AttentionHeads heads_;
  double scale_;
  Tensor lse_;
};

Form form_of(const MixerConfig& mixer) {
  return mixer.form == "recurrent" ? Form::recurrent
         : mixer.form == "chunked" ? Form::chunked
                                   : Form::quadratic;
}

// What the linear mixers share: a state of fixed size.
class LinearRead : public Attention {
 public:
  LinearRead(const AttentionHeads& heads, const MixerConfig& mixer)
      : heads_(heads),
        map_(feature_map(mixer, heads.width)),
        read_(mixer.read == "raw" ? Read::raw : Read::normalised),
        decays_(mixer.decays()) {}

  void take_state(Arena& arena, DType dtype, MixerState& state, int64_t batch, int64_t) const override {
    state.memory =
        arena.take("mixer state", wide(dtype),
                   {batch, heads_.kv_heads, map_.features(), state_columns(read_, heads_.value_width)});
  }
  int64_t state_entries(int64_t) const override {
    return kata::state_entries(map_, read_, heads_.kv_heads, heads_.value_width);
  }
  // The state fades, takes one token and is read by every query head.
  int64_t operations(int64_t length) const override {
    return state_entries(length) * (2 + 2 * (heads_.heads / heads_.kv_heads) + (decays_ ? 1 : 0));
  }

 protected:
  AttentionHeads heads_;
  FeatureMap map_;
  Read read_;
  bool decays_;
};

// Additive updates, any map, normalised or raw read.
class AdditiveAttention : public LinearRead {
 public:
  AdditiveAttention(const AttentionHeads& heads, const MixerConfig& mixer)
      : LinearRead(heads, mixer),
        automatic_(mixer.form == "auto"),
        settings_{map_, read_, form_of(mixer), mixer.chunk} {}

  void forward(Context& ctx, const Tensor& o, const AttentionInputs& in, const Sequence& sequence) override {
    mass_ = take_mass(ctx, in);
    linear_attention_forward(ctx, o, mass_, in.q, in.k, in.v, settings(sequence.time), {}, {},
                             {in.log_decay, sequence.starts});
  }
  void backward(Context& ctx, const AttentionInputs& gradients, const Tensor& d_o, const AttentionInputs& in,
                const Tensor& o, const Sequence& sequence) override {
    linear_attention_backward(ctx, gradients.q, gradients.k, gradients.v, d_o, in.q, in.k, in.v, o, mass_,
                              settings(sequence.time), {in.log_decay, sequence.starts}, gradients.log_decay);
  }
  void prefill(Context& ctx, const Tensor& o, const AttentionInputs& in, const Sequence& sequence,
               MixerState& state) override {
    LinearAttention chunked = settings_;
    chunked.form = Form::chunked;
    linear_attention_forward(ctx, o, take_mass(ctx, in), in.q, in.k, in.v, chunked, state.memory,
                             state.memory, {in.log_decay, sequence.starts});
  }
  void step(Context& ctx, const Tensor& o, const AttentionInputs& in, MixerState& state,
            const StepPlace&) override {
    linear_attention_step(ctx, o, in.q, in.k, in.v, state.memory, map_, read_, in.log_decay);
  }

 private:
  Tensor take_mass(Context& ctx, const AttentionInputs& in) const {
    if (read_ == Read::raw) return {};
    return ctx.arena.take("attention mass", wide(in.q.dtype()), {in.q.dim(0), in.q.dim(1), in.q.dim(2)});
  }
  // A token takes T (d + dv) operations in the quadratic form and 4 n dv in the chunked one: equal near T = 2
  // n.
  LinearAttention settings(int64_t time) const {
    LinearAttention chosen = settings_;
    if (automatic_) chosen.form = time > 2 * map_.features() ? Form::chunked : Form::quadratic;
    return chosen;
  }

  bool automatic_;
  LinearAttention settings_;
  Tensor mass_;
};

// The delta rule; q and k are unit rows.
class DeltaRule : public LinearRead {
 public:
  DeltaRule(const AttentionHeads& heads, const MixerConfig& mixer)
      : LinearRead(heads, mixer),
        settings_{map_, mixer.form == "recurrent" ? Form::recurrent : Form::chunked, mixer.chunk} {}

  void forward(Context& ctx, const Tensor& o, const AttentionInputs& in, const Sequence& sequence) override {
    errors_ = take_errors(ctx, in);
    delta_attention_forward(ctx, o, errors_, in.q, in.k, in.v, in.beta, settings_, {}, {},
                            {in.log_decay, sequence.starts});
  }
  void backward(Context& ctx, const AttentionInputs& gradients, const Tensor& d_o, const AttentionInputs& in,
                const Tensor&, const Sequence& sequence) override {
    delta_attention_backward(ctx, gradients.q, gradients.k, gradients.v, gradients.beta, d_o, in.q, in.k,
                             in.v, in.beta, errors_, settings_, {in.log_decay, sequence.starts},
                             gradients.log_decay);
  }
  void prefill(Context& ctx, const Tensor& o, const AttentionInputs& in, const Sequence& sequence,
               MixerState& state) override {
    DeltaAttention chunked = settings_;
    chunked.form = Form::chunked;
    delta_attention_forward(ctx, o, take_errors(ctx, in), in.q, in.k, in.v, in.beta, chunked, state.memory,
                            state.memory, {in.log_decay, sequence.starts});
  }
  void step(Context& ctx, const Tensor& o, const AttentionInputs& in, MixerState& state,
            const StepPlace&) override {
    delta_attention_step(ctx, o, in.q, in.k, in.v, in.beta, state.memory, map_, in.log_decay);
  }
  int64_t operations(int64_t length) const override {
    return LinearRead::operations(length) + 2 * state_entries(length);  // what the state answers to the key
  }

 private:
  Tensor take_errors(Context& ctx, const AttentionInputs& in) const {
    return ctx.arena.take("delta errors", wide(in.v.dtype()), in.v.shape());
  }

  DeltaAttention settings_;
  Tensor errors_;
};

MapKind map_kind(const std::string& name) {
  if (name == "identity") return MapKind::identity;
  if (name == "orthant") return MapKind::orthant;
  if (name == "lorentz") return MapKind::lorentz;
  if (name == "psd") return MapKind::psd;
  if (name == "psd_sum") return MapKind::psd_sum;
  if (name == "hermitian") return MapKind::hermitian;
  KATA_CHECK(name == "quaternionic", "no feature map {}", name);
  return MapKind::quaternionic;
}

}  // namespace

FeatureMap feature_map(const MixerConfig& mixer, int64_t width) {
  return {map_kind(mixer.map), width, mixer.groups};
}

std::unique_ptr<Attention> make_attention(const AttentionHeads& heads, const MixerConfig& mixer) {
  if (mixer.softmax()) return std::make_unique<SoftmaxAttention>(heads);
  if (mixer.delta()) return std::make_unique<DeltaRule>(heads, mixer);
  return std::make_unique<AdditiveAttention>(heads, mixer);
}

}  // namespace kata
