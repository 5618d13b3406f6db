// What a model has to answer for the harness, and the model that knows nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "eval/harness/python_random.h"
#include "eval/harness/request.h"

namespace kata::harness {

struct Likelihood {
  double sum = 0;      // nats, of the whole continuation
  bool greedy = true;  // whether each of its tokens is the most likely one
};

// A request and the name of its document in messages: "piqa, document 17".
struct Asked {
  const Request* request = nullptr;
  std::string where;
};

// Called after each piece of work with the requests that it answered and the tokens that it read; false ends
// the work.
using RequestsDone = std::function<bool(int64_t requests, int64_t tokens)>;

// Answers stand in the order of the requests, whatever order they are worked on in. Work that was ended
// gives fewer answers.
class LanguageScorer {
 public:
  virtual ~LanguageScorer() = default;

  virtual std::vector<Likelihood> loglikelihood(const std::vector<Asked>& asked,
                                                const RequestsDone& done) = 0;
  virtual std::vector<double> rolling(const std::vector<Asked>& asked, const RequestsDone& done) = 0;
  virtual std::vector<std::string> generate(const std::vector<Asked>& asked, const RequestsDone& done) = 0;

  virtual std::string name() const = 0;            // "dummy", or of the checkpoint
  virtual Json settings() const = 0;               // what changes a number, for the results file
  virtual int64_t truncated() const { return 0; }  // requests whose context lost tokens so far
};

// lm-eval's dummy: minus the next number of random.Random(0), never greedy; "lol" where text is asked for.
class DummyScorer : public LanguageScorer {
 public:
  std::vector<Likelihood> loglikelihood(const std::vector<Asked>& asked, const RequestsDone& done) override;
  std::vector<double> rolling(const std::vector<Asked>& asked, const RequestsDone& done) override;
  std::vector<std::string> generate(const std::vector<Asked>& asked, const RequestsDone& done) override;
  std::string name() const override { return "dummy"; }
  Json settings() const override { return Json::object(); }

 private:
  PythonRandom random_{0};
};

}  // namespace kata::harness
