// The delta rule token by token: the step of generation, and the same over a sequence.
//
// Floor of the step: memory. The state, n dv numbers a key head, is read twice and written once: what it
// answers to k has to be known before it can be corrected.
#include "ops/cpu/decay.h"
#include "ops/cpu/token_state.h"
#include "ops/delta_attention.h"

namespace kata::cpu {

namespace {

// e = v - keep * answer, and answer = beta e: what is written.
template <class T>
void correct(T* e, T* answer, const T* v, T keep, T beta, int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    e[j] = v[j] - keep * answer[j];
    answer[j] = beta * e[j];
  }
}

// Scratch of one (batch row, key head) over a sequence; the state is the first slice.
template <class T>
struct SequenceScratch {
  SequenceScratch(T* base, const FeatureMap& map, const AttentionSize& size)
      : slices(base),
        state(slices.take(map.features() * size.value_width)),
        fk(slices.take(map.features())),
        fq(slices.take(size.group() * map.features())),
        out(slices.take(size.group() * size.value_width)),
        write(slices.take(size.value_width)),
        u(slices.take(size.width)) {}

  Slices<T> slices;
  T *state, *fk, *fq, *out, *write, *u;
};

template <class T>
void sequence(const DeltaForward<T>& call, const FeatureMap& map, const AttentionSize& size,
              const SequenceScratch<T>& scratch, int64_t b, int64_t kv) {
  const int64_t n = map.features(), columns = size.value_width, group = size.group();
  const int64_t state_size = n * columns, at = (b * size.kv_heads + kv) * state_size;
  const HeadDecay<T> decay(call.decay, b, kv);
  if (call.state_in != nullptr)
    std::copy_n(call.state_in + at, state_size, scratch.state);
  else
    std::fill_n(scratch.state, state_size, T(0));
  for (int64_t t = 0; t < size.tokens; ++t) {
    const int64_t gate = (b * size.tokens + t) * size.kv_heads + kv;
    const T keep = decay_exp(decay.at(t));
    load_row(scratch.u, call.k.at(b, t, kv), map);
    token_features(scratch.fk, scratch.u, map, 0, n);
    for (int64_t i = 0; i < group; ++i) {
      load_row(scratch.u, call.q.at(b, t, kv * group + i), map);
      token_features(scratch.fq + i * n, scratch.u, map, 0, n);
    }
    std::fill_n(scratch.write, columns, T(0));
    add_read(scratch.write, scratch.state, scratch.fk, n, columns);
    correct(call.errors + gate * columns, scratch.write, call.v.at(b, t, kv), keep, call.beta[gate], columns);
    std::fill_n(scratch.out, group * columns, T(0));
    token_step(scratch.state, keep, scratch.out, scratch.fk, scratch.write, scratch.fq, n, columns, group);
    for (int64_t i = 0; i < group; ++i)
      std::copy_n(scratch.out + i * columns, columns, call.o.at(b, t, kv * group + i));
  }
  if (call.state_out != nullptr) std::copy_n(scratch.state, state_size, call.state_out + at);
}

// Scratch of one unit of a step: a block of features of one (batch row, key head). `answer` and `out` come
// first, so that the units of a pair can be summed.
template <class T>
struct StepScratch {
  StepScratch(T* base, int64_t block, const AttentionSize& size)
      : slices(base),
        answer(slices.take(size.value_width)),
        out(slices.take(size.group() * size.value_width)),
        fk(slices.take(block)),
        fq(slices.take(size.group() * block)),
        e(slices.take(size.value_width)),
        u(slices.take(size.width)) {}
  Slices<T> slices;
  T *answer, *out, *fk, *fq, *e, *u;
};

}  // namespace

int64_t delta_attention_recurrent_scratch(const FeatureMap& map, const AttentionSize& size) {
  return thread_count() * SequenceScratch<float>(nullptr, map, size).slices.used();
}

template <class T>
void delta_attention_recurrent_forward(const DeltaForward<T>& call, const FeatureMap& map,
                                       const AttentionSize& size) {
  const int64_t stride = SequenceScratch<T>(nullptr, map, size).slices.used();
  parallel_for(size.batch * size.kv_heads, [&](int64_t unit) {
    const SequenceScratch<T> scratch(call.scratch + thread_index() * stride, map, size);
    sequence(call, map, size, scratch, unit / size.kv_heads, unit % size.kv_heads);
  });
}

int64_t delta_attention_step_scratch(const FeatureMap& map, const AttentionSize& size) {
  const int64_t blocks = step_blocks(map, size), block = ceil_div(map.features(), blocks);
  return size.batch * size.kv_heads * blocks * StepScratch<float>(nullptr, block, size).slices.used();
}

template <class T>
void delta_attention_step(const DeltaStep<T>& call, const FeatureMap& map, const AttentionSize& size) {
  const int64_t blocks = step_blocks(map, size), features = map.features(), group = size.group();
  const int64_t block = ceil_div(features, blocks), columns = size.value_width;
  const int64_t stride = StepScratch<T>(nullptr, block, size).slices.used(),
                pairs = size.batch * size.kv_heads;
  const auto scratch_of = [&](int64_t unit) {
    return StepScratch<T>(call.scratch + unit * stride, block, size);
  };
  const auto state_of = [&](int64_t unit) {
    return call.state + (unit / blocks * features + unit % blocks * block) * columns;
  };
  const auto count_of = [&](int64_t unit) { return std::min(block, features - unit % blocks * block); };
  const auto sum_blocks = [&](int64_t pair, auto member, int64_t n) {  // into that of the pair's first unit
    T* sum = scratch_of(pair * blocks).*member;
    for (int64_t j = 1; j < blocks; ++j) {
      const T* part = scratch_of(pair * blocks + j).*member;
      for (int64_t i = 0; i < n; ++i) sum[i] += part[i];
    }
    return sum;
  };
  parallel_for(pairs * blocks, [&](int64_t unit) {
    const StepScratch<T> scratch = scratch_of(unit);
    const int64_t pair = unit / blocks, b = pair / size.kv_heads, kv = pair % size.kv_heads;
    const int64_t begin = unit % blocks * block, n = count_of(unit);
    load_row(scratch.u, call.k.at(b, 0, kv), map);
    token_features(scratch.fk, scratch.u, map, begin, begin + n);
    for (int64_t i = 0; i < group; ++i) {
      load_row(scratch.u, call.q.at(b, 0, kv * group + i), map);
      token_features(scratch.fq + i * n, scratch.u, map, begin, begin + n);
    }
    std::fill_n(scratch.answer, columns, T(0));
    add_read(scratch.answer, state_of(unit), scratch.fk, n, columns);
  });
  const auto keep_of = [&](int64_t pair) {
    return call.log_decay == nullptr ? T(1) : decay_exp(call.log_decay[pair]);
  };
  for (int64_t pair = 0; pair < pairs; ++pair)
    correct(scratch_of(pair * blocks).e, sum_blocks(pair, &StepScratch<T>::answer, columns),
            call.v.at(pair / size.kv_heads, 0, pair % size.kv_heads), keep_of(pair), call.beta[pair],
            columns);
  parallel_for(pairs * blocks, [&](int64_t unit) {
    const StepScratch<T> scratch = scratch_of(unit);
    const int64_t pair = unit / blocks;
    std::fill_n(scratch.out, group * columns, T(0));
    token_step(state_of(unit), keep_of(pair), scratch.out, scratch.fk, scratch_of(pair * blocks).answer,
               scratch.fq, count_of(unit), columns, group);
  });
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const T* out = sum_blocks(pair, &StepScratch<T>::out, group * columns);
    for (int64_t i = 0; i < group; ++i)
      std::copy_n(out + i * columns, columns,
                  call.o.at(pair / size.kv_heads, 0, pair % size.kv_heads * group + i));
  }
}

#define KATA_INSTANTIATE(T)                                                                     \
  template void delta_attention_recurrent_forward<T>(const DeltaForward<T>&, const FeatureMap&, \
                                                     const AttentionSize&);                     \
  template void delta_attention_step<T>(const DeltaStep<T>&, const FeatureMap&, const AttentionSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
