#include "eval/harness/language_scorer.h"

namespace kata::harness {

std::vector<Likelihood> DummyScorer::loglikelihood(const std::vector<Asked>& asked,
                                                   const RequestsDone& done) {
  std::vector<Likelihood> answers;
  for (size_t i = 0; i < asked.size(); ++i) answers.push_back({-random_.random(), false});
  done(static_cast<int64_t>(asked.size()), 0);
  return answers;
}

std::vector<double> DummyScorer::rolling(const std::vector<Asked>& asked, const RequestsDone& done) {
  std::vector<double> answers;
  for (size_t i = 0; i < asked.size(); ++i) answers.push_back(-random_.random());
  done(static_cast<int64_t>(asked.size()), 0);
  return answers;
}

std::vector<std::string> DummyScorer::generate(const std::vector<Asked>& asked, const RequestsDone& done) {
  done(static_cast<int64_t>(asked.size()), 0);
  return std::vector<std::string>(asked.size(), "lol");
}

}  // namespace kata::harness
