// From strings to tokens: how a context and a continuation are cut, what stands before them, what a model of
// limited length still sees (layer two of the harness; EVAL A.2, A.3, A.4).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"
#include "eval/harness/compat.h"

namespace kata::harness {

// How a tokenizer is used under the rules of a version.
struct TokenRules {
  const Tokenizer* tokenizer = nullptr;
  int32_t bos = -1;        // put before each text; -1: nothing is
  int32_t prefix = -1;     // in place of an empty context, and before a rolling text
  int64_t max_length = 0;  // input tokens that the model reads at most
};
// bos is the token that the tokenizer's own file puts before a text, else its document token, which is eos
// too. ExitCode::usage where the rules ask for a token that it does not have.
TokenRules token_rules(const Tokenizer& tokenizer, const Compat& compat, int64_t max_length);

// A row of tokens of which the last `targets.size()` predictions count: inputs[i] comes before the i-th token
// of the row, and the targets are what follows the last inputs.
struct Row {
  std::vector<int32_t> inputs, targets;
};

struct TokenPair {
  std::vector<int32_t> context, continuation;
};

// White space at the context's end goes to the continuation; the continuation's tokens are those of the whole
// beyond as many as the context has. `where` names the document: ExitCode::data where no token is left.
TokenPair encode_pair(const TokenRules& rules, std::string_view context, std::string_view continuation,
                      const std::string& where);

// The last max_length + 1 tokens but for the very last are the inputs. `truncated` is set where tokens are
// dropped. ExitCode::data where the continuation alone is longer.
Row scored_row(const TokenPair& pair, int64_t max_length, const std::string& where, bool& truncated);

// Windows over a text: each token is a target once, the first window begins with the prefix, later ones go
// back as far as max_length inputs reach.
std::vector<Row> rolling_rows(const std::vector<int32_t>& tokens, int32_t prefix, int64_t max_length);

}  // namespace kata::harness
