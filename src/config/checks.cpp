#include "config/checks.h"

#include <algorithm>

namespace kata {

int64_t TaskConfig::longest() const {
  int64_t length = 0;
  for (const TaskSegment& segment : segments) length = std::max(length, segment.length);
  return length;
}

namespace {

// One segment under its dotted key.
struct SegmentCheck {
  TaskSegment& segment;
  const TaskConfig& task;
  const std::string key;
  const Origins& origins;

  std::string at(const char* field) const { return key + "." + field; }

  void length() const {
    if (segment.length % 2 != 0)
      origins.reject(at("length"), "{} is odd; {} needs an even length", segment.length, task.name);
    if (segment.length >= task.vocab)
      origins.reject(at("length"), "{} is not below the task's vocabulary of {}", segment.length, task.vocab);
  }

  void mqar() const {
    constexpr const char* why = "with task mqar, which binds every key once; leave it out, or name overwrite";
    if (segment.rewrites != 0) origins.reject(at("rewrites"), "{} {}", segment.rewrites, why);
    if (segment.rewritten != 0) origins.reject(at("rewritten"), "{} {}", segment.rewritten, why);
    if (!segment.layout.empty()) origins.reject(at("layout"), "{} {}", segment.layout, why);
    length();
    // With length < vocab this leaves enough distinct keys and values, too.
    if (4 * segment.pairs > segment.length)
      origins.reject(at("pairs"), "{} pairs do not fit in length {}; expected at most {}", segment.pairs,
                     segment.length, segment.length / 4);
  }

  void overwrite() const {
    if (segment.rewrites == 0) segment.rewrites = 1;
    if (segment.rewritten == 0) segment.rewritten = segment.pairs;
    if (segment.layout.empty()) segment.layout = "block";
    length();
    if (segment.rewritten > segment.pairs)
      origins.reject(at("rewritten"), "{} rewritten keys, but there are {} pairs", segment.rewritten,
                     segment.pairs);
    if (segment.layout == "zoology" && segment.rewrites != 1)
      origins.reject(at("rewrites"), "{} with layout zoology, which has exactly 1", segment.rewrites);
    const int64_t bindings = segment.pairs + segment.rewrites * segment.rewritten;
    if (2 * bindings + 2 * segment.pairs > segment.length)
      origins.reject(at("pairs"),
                     "{} bindings and {} questions take {} tokens, which do not fit in length {}; expected "
                     "2 * (pairs + rewrites * rewritten) + 2 * pairs of at most the length",
                     bindings, segment.pairs, 2 * bindings + 2 * segment.pairs, segment.length);
  }
};

}  // namespace

void resolve_segments(std::vector<TaskSegment>& segments, const TaskConfig& task, const std::string& key,
                      const Origins& origins) {
  constexpr size_t most = 1000;
  if (segments.empty())
    origins.reject(key, "empty; give a list such as [{{length: 64, pairs: 4, examples: 1000}}]");
  if (segments.size() > most) origins.reject(key, "{} segments; expected at most {}", segments.size(), most);
  for (size_t i = 0; i < segments.size(); ++i) {
    const SegmentCheck check{segments[i], task, fmt::format("{}.{}", key, i), origins};
    task.name == "overwrite" ? check.overwrite() : check.mqar();
  }
}

void resolve_task(TaskConfig& task, const std::string& key, const Origins& origins) {
  resolve_segments(task.segments, task, key + ".segments", origins);
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
