// The part of a document around its answer, as the "just read twice" protocol cuts it for models of short
// context (EVAL A.7, cutting_context).
#pragma once

#include <optional>

#include "data/tokenizer.h"
#include "eval/harness/task.h"

namespace kata::harness {

inline constexpr int64_t answer_room = 50;  // tokens of the context length that are left to the answer

// The document with its context cut to context_length - answer_room tokens: half of them before the first
// occurrence of the answer, whatever its case; the context's beginning where the task names no answer. An
// answer that does not occur is sought among alt_answers, then taken to stand at the token tok_pos, else
// before the last character. Nothing for a document whose answer has one character or none: the protocol
// leaves it out.
std::optional<Document> cut_around_answer(const Task& task, const Document& document,
                                          const Tokenizer& tokenizer, int64_t context_length);

}  // namespace kata::harness
