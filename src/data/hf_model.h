// The model of a tokenizer.json: pieces and merges.
#pragma once

#include "data/bpe.h"
#include "data/json_view.h"

namespace kata {

inline constexpr int32_t largest_piece_id = (1 << 24) - 1;  // the largest vocabulary of a config

// Refuses models other than BPE, dropout, ids that two pieces share, merges of or into what is no piece.
BpeModel read_bpe_model(const JsonView& value);

}  // namespace kata
