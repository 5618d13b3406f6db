// A folder with token shards and a small config, and the real programs run inside it.
#pragma once

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/run_program.h"
#include "support/temp_dir.h"

namespace kata::test {

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void spill(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

class Workspace {
 public:
  Workspace() {
    std::string text;
    for (int i = 0; i < 60; ++i)
      text += "line " + std::to_string(i * i % 97) + ": the quick brown fox, again\n";
    spill(dir / "text.txt", text);
    const ProgramResult made = run("katadata", {"tokenize", "--input", "text.txt", "--output", "corpus",
                                                "--validation-fraction", "0.1", "--shard-tokens", "700"});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    spill(dir / "run.yaml", config);
  }

  // Runs a program in the folder.
  ProgramResult run(const std::string& program, std::vector<std::string> arguments,
                    ProgramOptions options = {}) const {
    return Program(argv(program, std::move(arguments)), in_folder(std::move(options))).wait();
  }
  std::vector<std::string> argv(const std::string& program, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), std::string(KATA_BIN_DIR) + "/" + program);
    return arguments;
  }
  ProgramOptions in_folder(ProgramOptions options = {}) const {
    options.folder = dir.path();
    return options;
  }
  ProgramResult train(std::vector<std::string> arguments, ProgramOptions options = {}) const {
    arguments.insert(arguments.begin(), {"--config", "run.yaml", "--output", "out"});
    return run("katatrain", std::move(arguments), std::move(options));
  }

  std::string read(const std::string& name) const { return slurp(dir / name); }
  bool exists(const std::string& name) const { return std::filesystem::exists(dir / name); }
  std::string newest(const std::string& run = "out") const {  // folder of the latest checkpoint, from here
    std::string name = read(run + "/checkpoints/latest");
    while (!name.empty() && name.back() == '\n') name.pop_back();
    return run + "/checkpoints/" + name;
  }

  // The lines of a metrics file without what may differ between equal runs.
  std::vector<nlohmann::json> metrics(const std::string& run = "out") const {
    std::vector<nlohmann::json> lines;
    std::ifstream in(dir / (run + "/metrics.jsonl"));
    for (std::string line; std::getline(in, line);) {
      lines.push_back(nlohmann::json::parse(line));
      for (const char* key : {"tokens_per_s", "mfu", "memory"}) {
        EXPECT_TRUE(lines.back().contains(key)) << line;
        lines.back().erase(key);
      }
    }
    return lines;
  }

  TempDir dir;
  // 46 windows of 40 tokens, 4 a step: an epoch ends inside step 12, every shard boundary inside a window.
  static constexpr const char* config = R"(
model:
  hidden: 16
  layers: 2
  heads: 2
  mlp: 24
  mixer: {preset: kata_m2, conv: 3}
data:
  tokenizer: bytes
  train: [corpus/train-*.bin]
  validation: [corpus/validation.bin]
train:
  steps: 40
  batch_tokens: 160
  sequence: 40
  seed: 5
  micro_batch: 2
  validate_every: 7
  checkpoint_every: 2
  keep_checkpoints: 3
optimizer: {lr: 1e-2, warmup: 4, final_lr: 1e-3}
logging: {every: 5}
)";
};

// One line on standard error that starts with the program's name and holds every fragment.
inline void expect_error(const ProgramResult& result, int code, const std::vector<std::string>& fragments) {
  EXPECT_EQ(result.exit_code, code) << result.err;
  EXPECT_EQ(result.signal, 0);
  const size_t at = result.err.rfind("error: ");
  ASSERT_NE(at, std::string::npos) << "no error line: " << result.err;
  const std::string line = result.err.substr(at);
  EXPECT_EQ(line.find('\n'), line.size() - 1) << "more than a line: " << result.err;
  for (const std::string& fragment : fragments)
    EXPECT_NE(line.find(fragment), std::string::npos) << "no \"" << fragment << "\" in: " << line;
}

}  // namespace kata::test
