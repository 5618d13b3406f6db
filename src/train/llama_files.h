// Folders in the Llama layout of Hugging Face (train/llama_layout.h): config.json and safetensors, read and
// written. Tokenizers are the caller's.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/run_config.h"
#include "nn/language_model.h"
#include "train/llama_layout.h"

namespace kata {

// The config.json that a model came with, among the files of its checkpoints.
inline constexpr const char* llama_config_file = "llama_config.json";
inline constexpr uint64_t largest_llama_config = 4 << 20;  // bytes

// ExitCode::usage where the folder exists and is not empty.
void require_empty_folder(const std::string& folder);

struct LlamaExport {
  LlamaContext context;
  uint64_t file_bytes = 5'000'000'000;  // data of a weights file; what is larger becomes several
  std::vector<std::pair<std::string, std::string>> files;  // more for the folder: name and bytes
};

// Writes an empty or new folder, config.json last. The model's weights (fp32, in host memory) are brought
// into the other order of rows on the way: it is of no use afterwards. ExitCode::usage where Llama cannot
// express it.
void write_llama_folder(const std::string& folder, LanguageModel& model, const LlamaExport& options);

// A model that was read: weights in fp32, in memory of its own.
struct LlamaImport {
  explicit LlamaImport(const std::string& folder);

  std::string config_text;  // of config.json
  LlamaContext context;
  LanguageModel& model() { return *model_; }

 private:
  std::unique_ptr<LanguageModel> model_;
  Arena memory_;
};

// Makes a run folder with the model as its checkpoint of step 0 and its config.yaml, which other configs may
// extend. `tokenizer`: what data.tokenizer says, and its file.
void save_imported(const std::string& run_folder, LlamaImport& imported, const std::string& tokenizer,
                   const std::pair<std::string, std::string>& tokenizer_file);

}  // namespace kata
