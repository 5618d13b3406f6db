// What fades between the tokens of a linear mixer: a learned decay, and the starts of documents.
//
// Between tokens s < t a state keeps exp(sum of log a over s + 1 .. t), and nothing across the start of a
// document (MATH 3).
#pragma once

#include "ops/documents.h"
#include "ops/token_heads.h"

namespace kata {

// Both may be undefined.
struct Decay {
  Tensor log =
      {};  // log a <= 0, [B, T, heads of the state], contiguous; that of a document's first token is not used
  Tensor starts = {};  // int32 [B, T]
};

// Decay as launchers see it.
template <class T>
struct LogDecay {
  const T* log = nullptr;  // [B, T, heads]
  Starts starts;
  int64_t tokens = 0, heads = 0;

  bool any() const { return log != nullptr || starts.data != nullptr; }
};

inline void require_decay(const char* op, const Decay& decay, const AttentionSize& size, DType dtype) {
  if (decay.log.defined())
    require(op, "log_decay", decay.log, {size.batch, size.tokens, size.kv_heads}, dtype);
  require_starts(op, decay.starts, size.batch, size.tokens);
}

// Of a checked decay.
template <class T>
LogDecay<T> log_decay_of(const Decay& decay, const AttentionSize& size) {
  return {decay.log.defined() ? decay.log.as<T>() : nullptr, starts_of(decay.starts), size.tokens,
          size.kv_heads};
}

}  // namespace kata
