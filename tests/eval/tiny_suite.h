// A suite that trains in a fraction of a second, and the counting of its trainings.
#pragma once

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <string>

#include "base/parallel.h"
#include "config/suite_config.h"
#include "eval/suite.h"
#include "support/temp_dir.h"

namespace kata::test {

inline const std::string tiny_suite_text = R"(
suite: tiny
model: {hidden: 8, layers: 2, heads: 1, mlp: 8}
models:
  - {name: softmax, mixer: {preset: softmax}}
  - {name: kata_m1, mixer: {preset: kata_m1, conv: 3, qk_norm: none, rope: none}}
task:
  vocab: 48
  segments: [{length: 16, pairs: 2, examples: 20}, {length: 24, pairs: 3, examples: 9}]
evaluation: [{length: 16, pairs: 2, examples: 30}, {length: 32, pairs: 4, examples: 10}]
train: {steps: 9, batch: 8, learning_rates: [1e-2], seed: 3}
optimizer: {schedule: cosine}
)";

// Changes that make it a suite of the task overwrite.
inline const std::vector<std::string> tiny_overwrite = {
    "task={name: overwrite, vocab: 48, segments: [{length: 16, pairs: 2, rewritten: 1, examples: 20}, "
    "{length: 24, pairs: 2, rewrites: 2, examples: 9}]}",
    "evaluation=[{length: 16, pairs: 2, rewritten: 1, examples: 30}, "
    "{length: 32, pairs: 2, rewrites: 2, examples: 10}]"};

inline std::string file_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// A suite and its output folder.
class TinySuite {
 public:
  explicit TinySuite(const std::vector<std::string>& overrides = {}) {
    set_thread_count(1);  // so little work is faster so
    set(overrides);
  }

  void set(const std::vector<std::string>& overrides) {
    write_bytes(dir / "tiny.yaml", tiny_suite_text);
    suite = load_suite_config(dir / "tiny.yaml", false, overrides);
  }
  // What is printed meanwhile ends up in `printed`.
  SuiteResults run(const std::function<bool()>& interrupted = [] { return false; }) {
    ::testing::internal::CaptureStderr();
    Monitor monitor(0, interrupted);
    SuiteResults results = run_suite(suite, false, output(), monitor);
    printed = ::testing::internal::GetCapturedStderr();
    return results;
  }
  std::string output() const { return dir / "out"; }

  // The files of a kind below the output, by path.
  std::vector<std::string> files(const std::string& name) const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(output()))
      if (entry.path().filename() == name) found.push_back(entry.path().string());
    std::sort(found.begin(), found.end());
    return found;
  }
  std::vector<std::string> models() const { return files("model.safetensors"); }
  // Times of writing of the trained weights: a training makes new ones.
  std::map<std::string, std::filesystem::file_time_type> training_times() const {
    std::map<std::string, std::filesystem::file_time_type> times;
    for (const std::string& path : models()) times[path] = std::filesystem::last_write_time(path);
    return times;
  }
  bool says(const std::string& text) const { return printed.find(text) != std::string::npos; }

  TempDir dir;
  SuiteConfig suite;
  std::string printed;
};

}  // namespace kata::test
