// What a model is trained on: token files, or a synthetic task.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/schema.h"

namespace kata {

// Examples of one kind: `pairs` key-value pairs in `length` tokens.
struct TaskSegment {
  int64_t length = 0;
  int64_t pairs = 0;
  int64_t examples = 0;
  // Of the task overwrite; resolved, and absent in mqar.
  int64_t rewrites = 0;   // times that a rewritten key is bound again after its first time; by default 1
  int64_t rewritten = 0;  // keys that are rewritten; by default all pairs
  std::string layout{};   // order of the bindings; by default block

  template <class Visitor>
  void visit(Visitor& v) {
    v.required("length", length, between(2, int64_t{1} << 31), "tokens per example, even");
    v.required("pairs", pairs, between(1, int64_t{1} << 29), "key-value pairs; 4 pairs fit in length");
    v.required("examples", examples, between(1, 1'000'000'000), "examples of this kind");
    v.field("rewrites", rewrites, none_or_between(1, int64_t{1} << 29),
            "overwrite only: times that a rewritten key is bound again; left out = 1");
    v.field("rewritten", rewritten, none_or_between(1, int64_t{1} << 29),
            "overwrite only: how many of the keys are rewritten; left out = all");
    v.field("layout", layout, none_or_one_of({"block", "interleaved", "zoology"}),
            "overwrite only: order of the bindings; left out = block");
  }

  // Of the same examples but for their number.
  bool same_kind(const TaskSegment& other) const {
    return length == other.length && pairs == other.pairs && rewrites == other.rewrites &&
           rewritten == other.rewritten && layout == other.layout;
  }
};

struct TaskConfig {
  std::string name = "mqar";
  int64_t vocab = 8192;
  int64_t seed = 123;            // NumPy seed that the segments' seeds are drawn from
  int64_t test_examples = 1000;  // held-out examples per segment, for validation
  std::vector<TaskSegment> segments;

  int64_t longest() const;  // largest length among the segments

  template <class Visitor>
  void visit_training(Visitor& v) {  // all but the held-out examples: a suite has a grid of its own for those
    v.field("name", name, one_of({"mqar", "overwrite"}), "the generator");
    v.field("vocab", vocab, between(4, 1 << 24), "tokens of the task; above every length");
    v.field("seed", seed, between(0, 4294967295), "seed of the examples");
    v.list("segments", segments, "training examples, in this order");
  }
  template <class Visitor>
  void visit(Visitor& v) {
    visit_training(v);
    v.field("test_examples", test_examples, between(1, 1'000'000'000),
            "held-out examples per segment, for validation");
  }
};

struct DataConfig {
  std::string tokenizer = "bytes";
  std::vector<std::string> train;       // paths or globs, from the working directory
  std::vector<std::string> validation;  // likewise
  int64_t document_token = -1;          // id that begins a document; -1 = none
  std::optional<TaskConfig> task;       // instead of the files

  template <class Visitor>
  void visit(Visitor& v) {
    v.field("tokenizer", tokenizer, text(), "bytes, or the path of a tokenizer file");
    v.field("train", train, text(), "token files to train on: paths or globs, from the working directory");
    v.field("validation", validation, text(), "token files to validate on");
    v.field("document_token", document_token, between(-1, 1 << 24),
            "id that begins a document: state, convolution and attention start anew there; -1 = none");
    v.optional_section("task", task, "a synthetic task instead of token files");
  }
};

}  // namespace kata
