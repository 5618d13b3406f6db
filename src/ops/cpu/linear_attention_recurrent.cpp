// Linear attention token by token: the step of generation, and the same over a whole sequence.
//
// Floor of the step: memory. The state, n (dv + 1) numbers a key head, is read and written once: the update
// S = a S + f(k) [v, 1]^T and the read f(q)^T S of a row happen while the row is in the first-level cache.
#include "ops/cpu/feature_block.h"
#include "ops/cpu/score.h"
#include "ops/cpu/token_state.h"

namespace kata::cpu {

namespace {

// df = s x
template <class T>
void rows_dot(T* df, const T* s, const T* x, int64_t n, int64_t columns) {
  for (int64_t p = 0; p < n; ++p) {
    const T* row = s + p * columns;
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < columns; ++j) sum += row[j] * x[j];
    df[p] = sum;
  }
}

// [v, 1], or v with a raw read
template <class T>
void load_value(T* out, const T* v, int64_t width, int64_t columns) {
  std::copy_n(v, width, out);
  if (columns > width) out[width] = 1;
}

// o = the read of [numerator, mass]; returns the mass.
template <class T>
T finish_read(T* o, const T* out, int64_t width, int64_t columns) {
  std::copy_n(out, width, o);
  if (columns == width) return 0;
  normalise_row(o, out[width], width);
  return out[width];
}

// Scratch of one (batch row, key head) over a sequence; the state is the first slice.
template <class T>
struct SequenceScratch {
  SequenceScratch(T* base, const LinearAttention& settings, const AttentionSize& size)
      : columns(state_columns(settings.read, size.value_width)),
        features(settings.map.features()),
        slices(base),
        state(slices.take(features * columns)),
        fk(slices.take(features)),
        fq(slices.take(size.group() * features)),
        out(slices.take(size.group() * columns)),
        v(slices.take(columns)),
        u(slices.take(size.width)),
        du(slices.take(size.width)) {}

  int64_t columns, features;
  Slices<T> slices;
  T *state, *fk, *fq, *out, *v, *u, *du;
};

template <class T>
void sequence_forward(const LinearAttentionForward<T>& call, const LinearAttention& settings,
                      const AttentionSize& size, const SequenceScratch<T>& scratch, int64_t b, int64_t kv) {
  const int64_t n = scratch.features, columns = scratch.columns, group = size.group();
  const FeatureMap& map = settings.map;
  const int64_t state_size = n * columns, at = (b * size.kv_heads + kv) * state_size;
  const HeadDecay<T> decay(call.decay, b, kv);
  if (call.state_in != nullptr)
    std::copy_n(call.state_in + at, state_size, scratch.state);
  else
    std::fill_n(scratch.state, state_size, T(0));
  for (int64_t t = 0; t < size.tokens; ++t) {
    load_row(scratch.u, call.k.at(b, t, kv), map);
    token_features(scratch.fk, scratch.u, map, 0, n);
    load_value(scratch.v, call.v.at(b, t, kv), size.value_width, columns);
    for (int64_t i = 0; i < group; ++i) {
      load_row(scratch.u, call.q.at(b, t, kv * group + i), map);
      token_features(scratch.fq + i * n, scratch.u, map, 0, n);
    }
    std::fill_n(scratch.out, group * columns, T(0));
    token_step(scratch.state, decay_exp(decay.at(t)), scratch.out, scratch.fk, scratch.v, scratch.fq, n,
               columns, group);
    for (int64_t i = 0; i < group; ++i) {
      const int64_t h = kv * group + i;
      const T mass = finish_read(call.o.at(b, t, h), scratch.out + i * columns, size.value_width, columns);
      if (call.mass != nullptr) call.mass[(b * size.tokens + t) * size.heads + h] = mass;
    }
  }
  if (call.state_out != nullptr) std::copy_n(scratch.state, state_size, call.state_out + at);
}

// dx = what df [n] passes back to one row of q or k; returns the row's share of dc.
template <class T>
T token_backward(T* dx, const T* df, const T* x, const SequenceScratch<T>& scratch, const FeatureMap& map) {
  const T scale = static_cast<T>(std::sqrt(map.sigma()));
  load_row(scratch.u, x, map);
  std::fill_n(scratch.du, map.width, T(0));
  token_features_backward(scratch.du, df, scratch.u, map);
  const T share = score_share(scratch.u, scratch.du, map);
  for (int64_t j = 0; j < map.width; ++j) scratch.du[j] *= scale;
  lift_row_backward(dx, scratch.du, x, map);
  return share;
}

template <class T>
void sequence_backward(const LinearAttentionBackward<T>& call, const LinearAttention& settings,
                       const AttentionSize& size, const SequenceScratch<T>& scratch, int64_t b, int64_t kv) {
  const int64_t n = scratch.features, columns = scratch.columns, group = size.group();
  const int64_t width = size.value_width;
  const FeatureMap& map = settings.map;
  const auto load_gradient = [&](int64_t t, int64_t h) {
    read_gradient_row(scratch.out, call.d_o.at(b, t, h), call.o.at(b, t, h),
                      call.mass == nullptr ? nullptr : call.mass + (b * size.tokens + t) * size.heads + h,
                      width);
  };
  const HeadDecay<T> decay(call.decay, b, kv);
  const DecayGradient<T> dc = decay_gradients(call, size, b, kv * group);
  std::fill_n(scratch.state, n * columns, T(0));
  for (int64_t t = 0; t < size.tokens; ++t) {  // S ascending: df(q_t) = S_t g_t
    load_row(scratch.u, call.k.at(b, t, kv), map);
    token_features(scratch.fk, scratch.u, map, 0, n);
    load_value(scratch.v, call.v.at(b, t, kv), width, columns);
    add_outer(scratch.state, decay_exp(decay.at(t)), scratch.fk, scratch.v, n, columns);
    T share = 0;
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      load_gradient(t, h);
      rows_dot(scratch.fq, scratch.state, scratch.out, n, columns);
      share += token_backward(call.dq.at(b, t, h), scratch.fq, call.q.at(b, t, h), scratch, map);
    }
    if (dc.data != nullptr) dc.data[t * dc.stride] = share;
  }
  std::fill_n(scratch.state, n * columns, T(0));
  for (int64_t t = size.tokens - 1; t >= 0;
       --t) {  // R descending: df(k_t) = R_t [v_t, 1], dv_t = R_t^T f(k_t)
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      load_row(scratch.u, call.q.at(b, t, h), map);
      token_features(scratch.fq, scratch.u, map, 0, n);
      load_gradient(t, h);
      const bool fade = h == kv * group && t + 1 < size.tokens;
      add_outer(scratch.state, fade ? decay_exp(decay.at(t + 1)) : T(1), scratch.fq, scratch.out, n, columns);
    }
    load_row(scratch.u, call.k.at(b, t, kv), map);
    token_features(scratch.fk, scratch.u, map, 0, n);
    std::fill_n(scratch.out, columns, T(0));
    add_read(scratch.out, scratch.state, scratch.fk, n, columns);
    std::copy_n(scratch.out, width, call.dv.at(b, t, kv));
    load_value(scratch.v, call.v.at(b, t, kv), width, columns);
    rows_dot(scratch.fq, scratch.state, scratch.v, n, columns);
    const T share = token_backward(call.dk.at(b, t, kv), scratch.fq, call.k.at(b, t, kv), scratch, map);
    if (dc.data != nullptr) dc.data[t * dc.stride] -= share;
  }
}

// Scratch of one unit of a step.
template <class T>
struct StepScratch {
  StepScratch(T* base, int64_t block, int64_t columns, const AttentionSize& size)
      : slices(base),
        out(slices.take(size.group() * columns)),
        fk(slices.take(block)),
        fq(slices.take(size.group() * block)),
        v(slices.take(columns)),
        u(slices.take(size.width)) {}
  Slices<T> slices;
  T *out, *fk, *fq, *v, *u;
};

}  // namespace

int64_t linear_attention_recurrent_scratch(bool, const LinearAttention& settings, const AttentionSize& size) {
  return thread_count() * SequenceScratch<float>(nullptr, settings, size).slices.used();
}

template <class T>
void linear_attention_recurrent_forward(const LinearAttentionForward<T>& call,
                                        const LinearAttention& settings, const AttentionSize& size) {
  const int64_t stride = SequenceScratch<T>(nullptr, settings, size).slices.used();
  parallel_for(size.batch * size.kv_heads, [&](int64_t unit) {
    const SequenceScratch<T> scratch(call.scratch + thread_index() * stride, settings, size);
    sequence_forward(call, settings, size, scratch, unit / size.kv_heads, unit % size.kv_heads);
  });
}

template <class T>
void linear_attention_recurrent_backward(const LinearAttentionBackward<T>& call,
                                         const LinearAttention& settings, const AttentionSize& size) {
  const int64_t stride = SequenceScratch<T>(nullptr, settings, size).slices.used();
  parallel_for(size.batch * size.kv_heads, [&](int64_t unit) {
    const SequenceScratch<T> scratch(call.scratch + thread_index() * stride, settings, size);
    sequence_backward(call, settings, size, scratch, unit / size.kv_heads, unit % size.kv_heads);
  });
  finish_decay_gradients(call, size);
}

int64_t linear_attention_step_scratch(const FeatureMap& map, Read read, const AttentionSize& size) {
  const int64_t blocks = step_blocks(map, size), block = ceil_div(map.features(), blocks);
  const StepScratch<float> unit(nullptr, block, state_columns(read, size.value_width), size);
  return size.batch * size.kv_heads * blocks * unit.slices.used();
}

template <class T>
void linear_attention_step(const LinearAttentionStep<T>& call, const FeatureMap& map, Read read,
                           const AttentionSize& size) {
  const int64_t blocks = step_blocks(map, size), features = map.features(), group = size.group();
  const int64_t block = ceil_div(features, blocks), columns = state_columns(read, size.value_width);
  const int64_t stride = StepScratch<T>(nullptr, block, columns, size).slices.used();
  parallel_for(size.batch * size.kv_heads * blocks, [&](int64_t unit) {
    const StepScratch<T> scratch(call.scratch + unit * stride, block, columns, size);
    const int64_t pair = unit / blocks, b = pair / size.kv_heads, kv = pair % size.kv_heads;
    const int64_t begin = unit % blocks * block, n = std::min(block, features - begin);
    load_row(scratch.u, call.k.at(b, 0, kv), map);
    token_features(scratch.fk, scratch.u, map, begin, begin + n);
    for (int64_t i = 0; i < group; ++i) {
      load_row(scratch.u, call.q.at(b, 0, kv * group + i), map);
      token_features(scratch.fq + i * n, scratch.u, map, begin, begin + n);
    }
    load_value(scratch.v, call.v.at(b, 0, kv), size.value_width, columns);
    std::fill_n(scratch.out, group * columns, T(0));
    const T keep = call.log_decay == nullptr ? T(1) : decay_exp(call.log_decay[pair]);
    token_step(call.state + (pair * features + begin) * columns, keep, scratch.out, scratch.fk, scratch.v,
               scratch.fq, n, columns, group);
  });
  for (int64_t pair = 0; pair < size.batch * size.kv_heads; ++pair) {
    T* sum = call.scratch + pair * blocks * stride;  // `out` is the first slice of a unit
    for (int64_t j = 1; j < blocks; ++j)
      for (int64_t e = 0; e < group * columns; ++e) sum[e] += sum[j * stride + e];
    for (int64_t i = 0; i < group; ++i)
      finish_read(call.o.at(pair / size.kv_heads, 0, pair % size.kv_heads * group + i), sum + i * columns,
                  size.value_width, columns);
  }
}

#define KATA_INSTANTIATE(T)                                                                           \
  template void linear_attention_recurrent_forward<T>(const LinearAttentionForward<T>&,               \
                                                      const LinearAttention&, const AttentionSize&);  \
  template void linear_attention_recurrent_backward<T>(const LinearAttentionBackward<T>&,             \
                                                       const LinearAttention&, const AttentionSize&); \
  template void linear_attention_step<T>(const LinearAttentionStep<T>&, const FeatureMap&, Read,      \
                                         const AttentionSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
