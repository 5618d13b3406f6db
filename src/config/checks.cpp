#include "config/checks.h"

#include <algorithm>

namespace kata {

int64_t TaskConfig::longest() const {
  int64_t length = 0;
  for (const TaskSegment& segment : segments) length = std::max(length, segment.length);
  return length;
}

void check_segments(const std::vector<TaskSegment>& segments, int64_t vocab, const std::string& key,
                    const Origins& origins) {
  constexpr size_t most = 1000;
  if (segments.empty())
    origins.reject(key, "empty; give a list such as [{{length: 64, pairs: 4, examples: 1000}}]");
  if (segments.size() > most) origins.reject(key, "{} segments; expected at most {}", segments.size(), most);
  for (size_t i = 0; i < segments.size(); ++i) {
    const TaskSegment& segment = segments[i];
    const auto at = [&](const char* field) { return fmt::format("{}.{}.{}", key, i, field); };
    if (segment.length % 2 != 0)
      origins.reject(at("length"), "{} is odd; mqar needs an even length", segment.length);
    if (segment.length >= vocab)
      origins.reject(at("length"), "{} is not below the task's vocabulary of {}", segment.length, vocab);
    // With length < vocab this leaves enough distinct keys and values, too.
    if (4 * segment.pairs > segment.length)
      origins.reject(at("pairs"), "{} pairs do not fit in length {}; expected at most {}", segment.pairs,
                     segment.length, segment.length / 4);
  }
}

void check_task(const TaskConfig& task, const std::string& key, const Origins& origins) {
  check_segments(task.segments, task.vocab, key + ".segments", origins);
}

void take_task_vocab(ModelConfig& model, const TaskConfig& task, const Origins& origins) {
  if (model.vocab == 0) model.vocab = task.vocab;
  if (model.vocab < task.vocab)
    origins.reject("model.vocab", "{} is smaller than the task's vocabulary of {}", model.vocab, task.vocab);
}

void check_optimizer(const OptimizerConfig& optimizer, double peak, int64_t steps, const Origins& origins) {
  if (optimizer.schedule != "constant" && optimizer.final_lr > peak)
    origins.reject("optimizer.final_lr", "{} is above the peak learning rate {}", optimizer.final_lr, peak);
  if (optimizer.schedule != "wsd" && optimizer.decay_steps != 0)
    origins.reject("optimizer.decay_steps", "{} with schedule {}; only wsd has a final decay",
                   optimizer.decay_steps, optimizer.schedule);
  if (optimizer.decay_steps > steps)
    origins.reject("optimizer.decay_steps", "{} is more than the {} steps of the run", optimizer.decay_steps,
                   steps);
}

}  // namespace kata
