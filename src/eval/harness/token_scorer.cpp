#include "eval/harness/token_scorer.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace kata::harness {

TokenScorer::TokenScorer(TokenModel& model, const TokenRules& rules, int64_t batch, std::string name)
    : model_(model), rules_(rules), batch_(batch), name_(std::move(name)) {
  KATA_CHECK(batch > 0 && rules.max_length > 0, "batch {}, length {}", batch, rules.max_length);
}

Json TokenScorer::settings() const {
  Json settings = {{"tokenizer", rules_.tokenizer->name()},
                   {"max_length", rules_.max_length},
                   {"prefix_token", rules_.prefix},
                   {"bos_token", nullptr},
                   {"softmax_dtype", "fp32"}};
  if (rules_.bos >= 0) settings["bos_token"] = rules_.bos;
  return settings;
}

void TokenScorer::check_vocabulary(const std::vector<int32_t>& ids, const std::string& where) const {
  for (const int32_t id : ids)
    if (id < 0 || id >= model_.vocab())
      fail(ExitCode::data,
           "{}: token {} of the tokenizer {} is none of the model's {}: they do not belong together", where,
           id, rules_.tokenizer->name(), model_.vocab());
}

bool TokenScorer::score_all(const std::vector<Work>& work, size_t requests, const RequestsDone& done,
                            std::vector<Likelihood>& answers) {
  // Long rows first: memory runs out at once or never, and the rows of a batch are alike.
  std::vector<size_t> order(work.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return work[a].row.inputs.size() > work[b].row.inputs.size(); });
  answers.assign(work.size(), {});
  std::vector<int64_t> open(requests, 0);  // rows of a request without an answer
  for (const Work& one : work) ++open[one.request];
  std::vector<Row> rows;
  for (size_t begin = 0; begin < order.size(); begin += static_cast<size_t>(batch_)) {
    const size_t end = std::min(order.size(), begin + static_cast<size_t>(batch_));
    rows.clear();
    for (size_t i = begin; i < end; ++i) rows.push_back(work[order[i]].row);
    const std::vector<Likelihood> some = model_.score(rows);
    int64_t finished = 0, tokens = 0;
    for (size_t i = begin; i < end; ++i) {
      answers[order[i]] = some[i - begin];
      tokens += static_cast<int64_t>(rows[i - begin].inputs.size());
      finished += --open[work[order[i]].request] == 0;
    }
    if (!done(finished, tokens) && end < order.size()) return false;
  }
  return true;
}

std::vector<Likelihood> TokenScorer::loglikelihood(const std::vector<Asked>& asked,
                                                   const RequestsDone& done) {
  std::vector<Work> work;
  for (size_t i = 0; i < asked.size(); ++i) {
    const TokenPair pair =
        encode_pair(rules_, asked[i].request->context, asked[i].request->continuation, asked[i].where);
    check_vocabulary(pair.context, asked[i].where);
    check_vocabulary(pair.continuation, asked[i].where);
    bool cut = false;
    work.push_back({scored_row(pair, rules_.max_length, asked[i].where, cut), i});
    truncated_ += cut;
  }
  std::vector<Likelihood> answers;
  if (!score_all(work, asked.size(), done, answers)) answers.clear();
  return answers;
}

std::vector<double> TokenScorer::rolling(const std::vector<Asked>& asked, const RequestsDone& done) {
  std::vector<Work> work;
  for (size_t i = 0; i < asked.size(); ++i) {
    std::vector<int32_t> ids = rules_.tokenizer->encode(asked[i].request->continuation);
    if (rules_.bos >= 0) ids.insert(ids.begin(), rules_.bos);
    check_vocabulary(ids, asked[i].where);
    for (Row& row : rolling_rows(ids, rules_.prefix, rules_.max_length)) work.push_back({std::move(row), i});
  }
  std::vector<Likelihood> rows;
  if (!score_all(work, asked.size(), done, rows)) return {};
  std::vector<double> answers(asked.size(), 0.0);
  for (size_t i = 0; i < work.size(); ++i) answers[work[i].request] += rows[i].sum;
  return answers;
}

std::string TokenScorer::written(const Request& request, const std::vector<int32_t>& prompt) {
  const int32_t end_of_text = rules_.tokenizer->document_token();
  std::string text;
  model_.generate(prompt, request.max_tokens, [&](int32_t token) {
    if (token == end_of_text) return false;
    text += rules_.tokenizer->decode_next(token);
    return std::none_of(request.until.begin(), request.until.end(),
                        [&](const std::string& stop) { return text.find(stop) != std::string::npos; });
  });
  return cut_at_stops(std::move(text), request.until);
}

std::vector<std::string> TokenScorer::generate(const std::vector<Asked>& asked, const RequestsDone& done) {
  std::vector<std::string> answers;
  for (const Asked& one : asked) {
    const Request& request = *one.request;
    std::vector<int32_t> prompt = rules_.tokenizer->encode(request.context);
    if (rules_.bos >= 0) prompt.insert(prompt.begin(), rules_.bos);
    if (prompt.empty()) prompt = {rules_.prefix};
    check_vocabulary(prompt, one.where);
    const int64_t room = rules_.max_length - request.max_tokens;
    if (room <= 0)
      fail(ExitCode::usage, "{}: up to {} new tokens leave no room for a prompt in {}; raise --max-length",
           one.where, request.max_tokens, rules_.max_length);
    if (static_cast<int64_t>(prompt.size()) > room) {
      prompt.erase(prompt.begin(), prompt.end() - room);
      ++truncated_;
    }
    answers.push_back(written(request, prompt));
    if (!done(1, static_cast<int64_t>(prompt.size())) && answers.size() < asked.size()) return {};
  }
  return answers;
}

std::string cut_at_stops(std::string text, const std::vector<std::string>& stops) {
  for (const std::string& stop : stops)
    if (!stop.empty()) text.resize(std::min(text.find(stop), text.size()));
  return text;
}

}  // namespace kata::harness
