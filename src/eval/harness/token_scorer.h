// A tokenizer and a model of tokens make a scorer of strings: requests become rows, rows of like length are
// worked on together, answers go back to their places.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "eval/harness/language_scorer.h"
#include "eval/harness/token_pairs.h"

namespace kata::harness {

class TokenModel {
 public:
  virtual ~TokenModel() = default;

  virtual int64_t vocab() const = 0;
  // The targets of each row after its last inputs; an answer a row. What it says of a row does not depend on
  // the rows beside it, but for the order of sums.
  virtual std::vector<Likelihood> score(const std::vector<Row>& rows) = 0;
  // The likeliest tokens after a prompt, at most max_tokens; `more` sees each and says whether to go on.
  virtual void generate(const std::vector<int32_t>& prompt, int64_t max_tokens,
                        const std::function<bool(int32_t)>& more) = 0;
};

class TokenScorer : public LanguageScorer {
 public:
  // The tokenizer in `rules` and the model must outlive it. batch: rows at a time.
  TokenScorer(TokenModel& model, const TokenRules& rules, int64_t batch, std::string name);

  std::vector<Likelihood> loglikelihood(const std::vector<Asked>& asked, const RequestsDone& done) override;
  std::vector<double> rolling(const std::vector<Asked>& asked, const RequestsDone& done) override;
  std::vector<std::string> generate(const std::vector<Asked>& asked, const RequestsDone& done) override;
  std::string name() const override { return name_; }
  Json settings() const override;
  int64_t truncated() const override { return truncated_; }

 private:
  // A row, and the request that it belongs to.
  struct Work {
    Row row;
    size_t request = 0;
  };
  void check_vocabulary(const std::vector<int32_t>& ids, const std::string& where) const;
  // An answer per row, in the order of the rows; nothing where the work was ended.
  bool score_all(const std::vector<Work>& work, size_t requests, const RequestsDone& done,
                 std::vector<Likelihood>& answers);
  std::string written(const Request& request, const std::vector<int32_t>& prompt);

  TokenModel& model_;
  TokenRules rules_;
  int64_t batch_;
  std::string name_;
  int64_t truncated_ = 0;
};

// `text` up to the first occurrence of each stop, one after the other.
std::string cut_at_stops(std::string text, const std::vector<std::string>& stops);

}  // namespace kata::harness
