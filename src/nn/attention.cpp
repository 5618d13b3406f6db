#include "nn/attention.h"

#include <algorithm>
#include <cmath>

#include "ops/linear_attention.h"
#include "ops/softmax_attention.h"

namespace kata {

namespace {

class SoftmaxAttention : public Attention {
 public:
  explicit SoftmaxAttention(const ModelConfig& model)
      : kv_heads_(model.kv_heads),
        width_(model.head_dim),
        scale_(1 / std::sqrt(static_cast<double>(width_))) {}

  void forward(Context& ctx, const Tensor& o, const Tensor& q, const Tensor& k, const Tensor& v) override {
    lse_ = ctx.arena.take("softmax log-sum-exp", q.dtype(), {q.dim(0), q.dim(1), q.dim(2)});
    softmax_attention_forward(ctx, o, lse_, q, k, v, scale_);
  }
  void backward(Context& ctx, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& d_o,
                const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o) override {
    softmax_attention_backward(ctx, dq, dk, dv, d_o, q, k, v, o, lse_, scale_);
  }
  void take_state(Arena& arena, DType dtype, MixerState& state, int64_t batch,
                  int64_t capacity) const override {
    state.keys = arena.take("key cache", dtype, {batch, capacity, kv_heads_, width_});
    state.values = arena.take("value cache", dtype, {batch, capacity, kv_heads_, width_});
  }
  void step(Context& ctx, const Tensor& o, const Tensor& q, const Tensor& k, const Tensor& v,
            MixerState& state, int64_t position) override {
    KATA_CHECK(position < state.keys.dim(1), "position {} of a cache of {}", position, state.keys.dim(1));
    append(ctx, state.keys, k, position);
    append(ctx, state.values, v, position);
    softmax_attention_step(ctx, o, q, state.keys, state.values, position + 1, scale_);
  }
  int64_t state_entries(int64_t length) const override { return 2 * length * kv_heads_ * width_; }

 private:
  // cache[:, position] = rows of one token, [B, Hkv, d]
  static void append(Context& ctx, const Tensor& cache, const Tensor& rows, int64_t position) {
    if (ctx.planning()) return;
    dispatch_float(cache.dtype(), [&]<class T>() {
      const int64_t width = rows.dim(1) * rows.dim(2);
      for (int64_t b = 0; b < rows.dim(0); ++b)
        std::copy_n(rows.as<T>() + b * rows.stride(0), width,
                    cache.as<T>() + b * cache.stride(0) + position * cache.stride(1));
    });
  }

  int64_t kv_heads_, width_;
  double scale_;
  Tensor lse_;
};

// Additive updates, any map of ops/feature_map.h, normalised or raw read.
class AdditiveAttention : public Attention {
 public:
  AdditiveAttention(const ModelConfig& model, const MixerConfig& mixer)
      : kv_heads_(model.kv_heads), width_(model.head_dim), automatic_(mixer.form == "auto") {
    settings_.map = {map_kind(mixer.map), model.head_dim, mixer.groups};
    settings_.read = mixer.read == "raw" ? Read::raw : Read::normalised;
    settings_.form = mixer.form == "recurrent" ? Form::recurrent
                     : mixer.form == "chunked" ? Form::chunked
                                               : Form::quadratic;
    settings_.chunk = mixer.chunk;
  }

  void forward(Context& ctx, const Tensor& o, const Tensor& q, const Tensor& k, const Tensor& v) override {
    mass_ = settings_.read == Read::normalised
                ? ctx.arena.take("attention mass", q.dtype(), {q.dim(0), q.dim(1), q.dim(2)})
                : Tensor();
    linear_attention_forward(ctx, o, mass_, q, k, v, settings(q.dim(1)));
  }
  void backward(Context& ctx, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& d_o,
                const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o) override {
    linear_attention_backward(ctx, dq, dk, dv, d_o, q, k, v, o, mass_, settings(q.dim(1)));
  }
  void take_state(Arena& arena, DType dtype, MixerState& state, int64_t batch, int64_t) const override {
    state.memory = arena.take("mixer state", dtype, {batch, kv_heads_, settings_.map.features(), columns()});
  }
  void step(Context& ctx, const Tensor& o, const Tensor& q, const Tensor& k, const Tensor& v,
            MixerState& state, int64_t) override {
    linear_attention_step(ctx, o, q, k, v, state.memory, settings_.map, settings_.read);
  }
  int64_t state_entries(int64_t) const override { return kv_heads_ * settings_.map.features() * columns(); }

 private:
  static MapKind map_kind(const std::string& name) {
    if (name == "identity") return MapKind::identity;
    if (name == "orthant") return MapKind::orthant;
    if (name == "lorentz") return MapKind::lorentz;
    if (name == "psd") return MapKind::psd;
    KATA_CHECK(name == "psd_sum", "no feature map {}", name);
    return MapKind::psd_sum;
  }

  // A token takes T (d + dv) operations in the quadratic form and 4 n dv in the chunked one: equal near T = 2
  // n.
  LinearAttention settings(int64_t time) const {
    LinearAttention chosen = settings_;
    if (automatic_) chosen.form = time > 2 * settings_.map.features() ? Form::chunked : Form::quadratic;
    return chosen;
  }
  int64_t columns() const { return width_ + (settings_.read == Read::normalised ? 1 : 0); }

  int64_t kv_heads_, width_;
  bool automatic_;
  LinearAttention settings_;
  Tensor mass_;
};

}  // namespace

std::unique_ptr<Attention> make_attention(const ModelConfig& model, const MixerConfig& mixer) {
  if (mixer.read == "softmax") return std::make_unique<SoftmaxAttention>(model);
  return std::make_unique<AdditiveAttention>(model, mixer);
}

}  // namespace kata
