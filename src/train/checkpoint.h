// Checkpoints: folders that are there whole or not at all, and whose every byte is guarded.
//
//   RUN/checkpoints/step-00000100/   model.safetensors      fp32 masters
//                                    optimizer.safetensors
//                                    config.yaml            the resolved configuration
//                                    ...                    further files, such as the tokenizer
//                                    state.json             step, caller's state, size and CRC-32 of the
//                                    files
//                                                           above, CRC-32 of its own text
//   RUN/checkpoints/latest           the name of the newest one, a line of text
//
// A save fills `.tmp-step-*`, makes it durable and renames it; only then `latest` moves. A save of a step
// that exists renames the old folder to `step-*.replaced` for the instant until the new one has its name, so
// that a kill at any moment leaves a complete checkpoint, which open_checkpoint finds.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/safetensors.h"

namespace kata {

struct CheckpointContents {
  int64_t step = 0;
  NamedTensors model;      // contiguous, finite
  NamedTensors optimizer;  // contiguous, finite
  nlohmann::json state;    // what resuming needs beside the tensors; finite numbers only
  std::string config;      // text of config.yaml
  std::vector<std::pair<std::string, std::string>> extra;  // file name and bytes
};

// Writes RUN/checkpoints/step-* and returns its path. keep_last > 0: afterwards only so many of the steps up
// to this one remain. What a killed save left is removed first. ExitCode::data when the disk refuses,
// ExitCode::numeric when a tensor is not finite: then nothing is saved, and what was there stays.
std::string save_checkpoint(const std::string& run_folder, const CheckpointContents& contents,
                            int64_t keep_last = 0);

// An opened checkpoint: the sizes and CRCs of all its files were verified.
class Checkpoint {
 public:
  const std::string& folder() const { return folder_; }
  int64_t step() const { return step_; }
  const nlohmann::json& state() const { return state_; }
  std::string config() const { return read("config.yaml"); }
  bool contains(const std::string& file) const { return files_.contains(file); }
  std::string read(const std::string& file) const;  // the bytes of any file of the folder

  // Reads model.safetensors or optimizer.safetensors. The tensors of the file must be exactly those given, of
  // the same shapes and types, and finite: otherwise ExitCode::data with the names.
  void read_tensors(const std::string& file, const NamedTensors& into) const;

 private:
  friend Checkpoint open_step_folder(const std::string& folder);

  std::string folder_;
  int64_t step_ = 0;
  nlohmann::json state_;
  std::map<std::string, FileSummary> files_;
};

// A run folder: its latest checkpoint; where that one is damaged, the newest complete one before it, after a
// warning that names the damaged file and the reason. Or one step folder, which must be complete. Everything
// else is ExitCode::data.
Checkpoint open_checkpoint(const std::string& path);

// "nan at [3, 0]" for the first value of a tensor that is not finite; empty where all are.
std::string non_finite_text(const Tensor& tensor);

}  // namespace kata
