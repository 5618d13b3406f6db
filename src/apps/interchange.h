// katadata export and import: checkpoints of ours and folders in the Llama layout of Hugging Face.
#pragma once

#include <utility>

#include "apps/options.h"
#include "base/file.h"
#include "base/json_file.h"
#include "data/tokenizer.h"
#include "train/checkpoint.h"
#include "train/inference_model.h"
#include "train/llama_files.h"

namespace kata {

struct ExportOptions {
  std::string checkpoint, output, dtype = "f32";
  int64_t file_bytes = static_cast<int64_t>(LlamaExport().file_bytes);
};

inline void add_export(CLI::App& app, ExportOptions& o) {
  app.add_option("--checkpoint", o.checkpoint, "a run (its latest checkpoint) or one step folder")
      ->required();
  app.add_option("--output", o.output, "folder to make")->required();
  app.add_option("--dtype", o.dtype, "of the weights: f32, as they are trained, or bf16, rounded")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  app.add_option("--file-bytes", o.file_bytes, "weights above this become several files and an index")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.footer(R"(
Example: transformers' AutoModelForCausalLM.from_pretrained("llama") reads what this writes
  katadata export --checkpoint runs/lm340m_softmax --output llama

Only models of softmax layers are Llamas. The tokenizer's file is put beside the weights.)");
}

// The tokenizer of a checkpoint; null for a model of a generated task.
inline std::unique_ptr<Tokenizer> tokenizer_of(const InferenceModel& model) {
  if (model.config().data.task) return nullptr;
  return load_tokenizer(model.checkpoint_folder(), model.config().data.tokenizer);
}

inline void export_llama(const ExportOptions& o) {
  require_empty_folder(o.output);
  InferenceModel loaded(o.checkpoint);
  const std::string& from = loaded.checkpoint_folder();
  LlamaExport options;
  options.file_bytes = static_cast<uint64_t>(o.file_bytes);
  if (const auto tokenizer = tokenizer_of(loaded)) {
    if (tokenizer->document_token() >= 0)
      options.context.bos = options.context.eos = tokenizer->document_token();
    if (tokenizer->name() == "bytes")
      logger().info("the ids are the byte values 0 to 255: there is no tokenizer file to write");
    else
      options.files.emplace_back(tokenizer->file_name(), tokenizer->serialise());
  }
  const std::string origin = from + "/" + llama_config_file;
  if (path_exists(origin))
    options.context = read_llama_context(read_json_object(origin, largest_llama_config), origin);
  else
    options.context.longest = loaded.config().train.sequence;
  options.context.dtype = o.dtype == "bf16" ? "bfloat16" : "float32";
  write_llama_folder(o.output, loaded.model(), options);
  logger().info("{}: {} parameters of {} in {}", o.output, loaded.model().parameters().count(), from,
                o.dtype);
}

struct ImportOptions {
  std::string from, output, tokenizer;
};

inline void add_import(CLI::App& app, ImportOptions& o) {
  app.add_option("--from", o.from, "folder with config.json and model.safetensors, or its parts and index")
      ->required()
      ->type_name("DIR");
  app.add_option("--output", o.output, "run folder to make")->required()->type_name("DIR");
  app.add_option("--tokenizer", o.tokenizer,
                 "its file, or bytes (default: tokenizer.model or tokenizer.json of the folder)");
  app.footer(R"(
Example: a model in the Llama layout becomes a run, writes text, and is the start of a training
  katadata import --from llama --output runs/llama
  katagen --checkpoint runs/llama --prompt "Once"
  katatrain --config finetune.yaml     # holds  extends: runs/llama/config.yaml
                                       #        train: {initial_checkpoint: runs/llama, steps: 1000}
                                       #        data: {train: [data/mine/train-*.bin]}

Weights in F32, F16 and BF16 are read, and kept in fp32. A model that is no plain Llama is refused.)");
}

inline std::string tokenizer_in(const std::string& folder) {
  for (const char* name : {"tokenizer.model", "tokenizer.json"})
    if (path_exists(folder + "/" + name)) return folder + "/" + name;
  fail(ExitCode::data,
       "{}: holds neither tokenizer.model nor tokenizer.json; give --tokenizer FILE, or --tokenizer bytes",
       folder);
}

inline void import_llama(const ImportOptions& o) {
  require_empty_folder(o.output);
  if (!is_folder(o.from)) fail(ExitCode::data, "{}: expected a folder with config.json", o.from);
  const auto tokenizer = make_tokenizer(o.tokenizer.empty() ? tokenizer_in(o.from) : o.tokenizer);
  LlamaImport imported(o.from);
  const int64_t vocab = imported.model().config().vocab;
  if (tokenizer->vocab() > vocab)
    logger().warn("tokenizer {} has {} ids, the model {}: text with the others is refused", tokenizer->name(),
                  tokenizer->vocab(), vocab);
  save_imported(o.output, imported, tokenizer->name(), {tokenizer->file_name(), tokenizer->serialise()});
  logger().info("{}: {} parameters of {}", o.output, imported.model().parameters().count(), o.from);
}

}  // namespace kata
