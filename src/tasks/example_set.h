// A set of generated examples of one kind: all that sources and scores know of a task.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace kata {

// What to generate. A task that has no use for a field keeps its default.
struct ExampleSpec {
  int64_t length = 64;  // tokens of an example
  int64_t pairs = 4;    // keys, each asked for once
  int64_t examples = 1000;
  int64_t vocab = 8192;
  uint32_t seed = 0;          // of NumPy
  std::string task = "mqar";  // or overwrite, with what follows
  int64_t rewrites = 0;       // times that a rewritten key is bound again
  int64_t rewritten = 0;      // keys that are
  std::string layout{};       // block, interleaved or zoology

  friend bool operator==(const ExampleSpec&, const ExampleSpec&) = default;
};

// A question and what the example says about its key.
struct Question {
  int64_t position = 0;  // of the key that asks, where the answer is predicted
  int32_t key = 0;
  std::vector<int32_t> values;  // bound to the key, in order; the last one is the right answer
};

class ExampleSet {
 public:
  virtual ~ExampleSet();

  // inputs, targets [length]: row in [0, examples); targets are kNoTarget where nothing is asked.
  virtual void render(int64_t row, int32_t* inputs, int32_t* targets) const = 0;
  // The questions of a row, in the order in which their keys appear. The vectors of `questions` are reused.
  virtual void questions(int64_t row, std::vector<Question>& questions) const = 0;
};

// ExitCode::usage where the spec cannot be met.
std::unique_ptr<ExampleSet> make_examples(const ExampleSpec& spec);
// The same refusals without the work of generating.
void check_examples(const ExampleSpec& spec);

}  // namespace kata
