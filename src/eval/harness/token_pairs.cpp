#include "eval/harness/token_pairs.h"

#include <algorithm>

#include "base/error.h"
#include "eval/harness/document.h"
#include "eval/harness/python_text.h"

namespace kata::harness {

namespace {

// A text that says bos itself does not get a second one.
std::vector<int32_t> encode(const TokenRules& rules, std::string_view text) {
  std::vector<int32_t> ids = rules.tokenizer->encode(text);
  if (rules.bos >= 0 && (ids.empty() || ids.front() != rules.bos)) ids.insert(ids.begin(), rules.bos);
  return ids;
}

}  // namespace

TokenRules token_rules(const Tokenizer& tokenizer, const Compat& compat, int64_t max_length) {
  // A tokenizer.json may put a token before every text; of other kinds the document token begins one.
  const std::vector<int32_t> around = tokenizer.encode_with_special_tokens("");
  const int32_t own = around.empty() ? -1 : around.front();
  const int32_t document = tokenizer.document_token(), begin = own >= 0 ? own : document;
  TokenRules rules{&tokenizer, -1, compat.prefix == Prefix::eos ? document : begin, max_length};
  if (compat.bos == BosPolicy::automatic) rules.bos = own;
  if (compat.bos == BosPolicy::on) {
    if (begin < 0)
      fail(ExitCode::usage, "--bos on: the tokenizer {} has no token that begins a text; leave it out",
           tokenizer.name());
    rules.bos = begin;
  }
  if (compat.prefix == Prefix::id) rules.prefix = compat.prefix_id;
  if (rules.prefix >= tokenizer.vocab())
    fail(ExitCode::usage, "--prefix {}: the tokenizer {} has {} tokens", rules.prefix, tokenizer.name(),
         tokenizer.vocab());
  if (rules.prefix < 0) {  // a model of bytes: a text begins where a line does
    const std::vector<int32_t> line = tokenizer.encode("\n");
    rules.prefix = line.empty() ? 0 : line.back();
  }
  return rules;
}

TokenPair encode_pair(const TokenRules& rules, std::string_view context, std::string_view continuation,
                      const std::string& where) {
  TokenPair pair;
  if (context.empty()) {
    pair.continuation = rules.tokenizer->encode(continuation);
    pair.context = {rules.prefix};
    if (!pair.continuation.empty() && pair.continuation[0] == rules.prefix)
      pair.continuation.erase(pair.continuation.begin());
  } else {
    const std::string whole = std::string(context).append(continuation);
    const std::vector<int32_t> ids = encode(rules, whole);
    pair.context = encode(rules, strip_right(context));
    const auto cut = static_cast<std::ptrdiff_t>(std::min(pair.context.size(), ids.size()));
    pair.continuation.assign(ids.begin() + cut, ids.end());
    if (pair.context.empty()) pair.context = {rules.prefix};  // it was white space alone
  }
  if (pair.continuation.empty())
    fail(ExitCode::data,
         "{}: the continuation {} has no token of its own after its context; the tokenizer {} {}", where,
         Json(std::string(continuation)).dump(), rules.tokenizer->name(), "joins the two");
  return pair;
}

Row scored_row(const TokenPair& pair, int64_t max_length, const std::string& where, bool& truncated) {
  const auto scored = static_cast<int64_t>(pair.continuation.size());
  if (scored > max_length)
    fail(ExitCode::data, "{}: a continuation of {} tokens, the model reads {} at most; raise --max-length",
         where, scored, max_length);
  std::vector<int32_t> all = pair.context;
  all.insert(all.end(), pair.continuation.begin(), pair.continuation.end());
  const auto length = static_cast<int64_t>(all.size());
  const int64_t dropped = std::max<int64_t>(0, length - (max_length + 1));
  truncated = truncated || dropped > 0;
  return {{all.begin() + dropped, all.end() - 1}, pair.continuation};
}

std::vector<Row> rolling_rows(const std::vector<int32_t>& tokens, int32_t prefix, int64_t max_length) {
  KATA_CHECK(max_length > 0, "max_length = {}", max_length);
  std::vector<int32_t> all = {prefix};
  all.insert(all.end(), tokens.begin(), tokens.end());
  const auto count = static_cast<int64_t>(tokens.size());
  std::vector<Row> rows;
  for (int64_t done = 0; done < count;) {
    const int64_t end = std::min(count, done + max_length);
    const int64_t begin = std::max<int64_t>(0, end - max_length);
    rows.push_back(
        {{all.begin() + begin, all.begin() + end}, {all.begin() + done + 1, all.begin() + end + 1}});
    done = end;
  }
  return rows;
}

}  // namespace kata::harness
