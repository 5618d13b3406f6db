#include "train/llama_files.h"

#include <algorithm>
#include <filesystem>
#include <unordered_map>
#include <unordered_set>

#include "base/bf16.h"
#include "base/file.h"
#include "base/json_file.h"
#include "base/safetensors_set.h"
#include "train/checkpoint.h"

namespace kata {

using nlohmann::json;

namespace {

constexpr const char* config_file = "config.json";

// Our tensors by name, in fp32.
class Weights {
 public:
  explicit Weights(LanguageModel& model) {
    const Parameters& parameters = model.parameters();
    for (const auto& [name, tensor] : parameters.named(parameters.values())) tensors_[name] = tensor;
  }
  Tensor rows_of(const LlamaTensor& there) const {
    const Tensor& here = tensors_.at(there.parameter);
    return here.rows(there.first_row, there.first_row + there.shape[0]);
  }

 private:
  std::unordered_map<std::string, Tensor> tensors_;
};

// ---- reading ----

void check_tensor(const SafetensorsSet& set, const LlamaTensor& expected) {
  const SafetensorsFile& file = set.file(expected.name);
  const TensorInfo& found = file.info(expected.name);
  if (found.shape_text() != expected.shape.str())
    fail(ExitCode::data, "{}: tensor \"{}\": {} asks for {}, found {}", file.path(), expected.name,
         config_file, expected.shape.str(), found.shape_text());
  if (found.dtype != "F32" && found.dtype != "F16" && found.dtype != "BF16")
    fail(ExitCode::data, "{}: tensor \"{}\": expected F32, F16 or BF16, found {}", file.path(), expected.name,
         found.dtype);
}

// Tensors that the model has no place for. Old files keep the frequencies of RoPE, which follow from
// config.json, and some write the head of a model that ties it.
void check_extra(const SafetensorsSet& set, const std::string& name, bool tied) {
  constexpr const char *frequencies = ".rotary_emb.inv_freq", *head = "lm_head.weight",
                       *embedding = "model.embed_tokens.weight";
  if (name.ends_with(frequencies)) return;
  const SafetensorsFile& file = set.file(name);
  if (!tied || name != head)
    fail(ExitCode::data, "{}: tensor {} has no place in the model of {}", file.path(), name_in_quotes(name),
         config_file);
  const auto a = file.bytes(head), b = set.file(embedding).bytes(embedding);
  if (!std::equal(a.begin(), a.end(), b.begin(), b.end()))
    fail(ExitCode::data, "{}: tensor \"{}\" differs from \"{}\", but {} says tie_word_embeddings: true",
         file.path(), head, embedding, config_file);
}

// Before memory for the model is taken: a config.json that asks for more than the files hold ends here.
void check_tensors(const SafetensorsSet& set, const std::vector<LlamaTensor>& expected, bool tied) {
  std::unordered_set<std::string> names;
  for (const LlamaTensor& tensor : expected) {
    check_tensor(set, tensor);
    names.insert(tensor.name);
  }
  for (const std::string& name : set.names())
    if (!names.contains(name)) check_extra(set, name, tied);
}

}  // namespace

LlamaImport::LlamaImport(const std::string& folder) {
  const std::string path = folder + "/" + config_file;
  const json config = read_json_object(path, largest_llama_config);
  config_text = config.dump(2) + "\n";
  const ModelConfig sizes = read_llama_config(config, path);
  context = read_llama_context(config, path);
  const std::vector<LlamaTensor> tensors = llama_tensors(sizes);
  const SafetensorsSet set(folder);
  check_tensors(set, tensors, sizes.tie_embeddings);

  model_ = std::make_unique<LanguageModel>(sizes, DType::f32);
  Parameters& parameters = model_->parameters();
  memory_ = Arena(static_cast<size_t>(parameters.count()) * size_of(DType::f32));
  parameters.bind(memory_.take("parameters", DType::f32, {parameters.count()}), {});
  const Weights weights(*model_);
  for (const LlamaTensor& tensor : tensors) {
    const Tensor rows = weights.rows_of(tensor);
    const SafetensorsFile& file = set.file(tensor.name);
    file.read_into(tensor.name, rows);
    if (const std::string bad = non_finite_text(rows); !bad.empty())
      fail(ExitCode::data, "{}: tensor \"{}\" holds {}; fetch the model again", file.path(), tensor.name,
           bad);
    if (tensor.rotated) order_pairs(rows, sizes.head_dim, PairOrder::neighbours);
  }
}

void save_imported(const std::string& run_folder, LlamaImport& imported, const std::string& tokenizer,
                   const std::pair<std::string, std::string>& tokenizer_file) {
  RunConfig config;
  config.model = imported.model().config();
  config.data.tokenizer = tokenizer;
  config.train.sequence = config.train.batch_tokens = imported.context.longest;
  CheckpointContents contents;
  contents.model = imported.model().parameters().named(imported.model().parameters().values());
  contents.state = {{"imported", "llama"}};
  contents.config = dump(config);
  contents.extra = {tokenizer_file, {llama_config_file, imported.config_text}};
  save_checkpoint(run_folder, contents);
  write_file_atomic(run_folder + "/config.yaml", contents.config);
}

// ---- writing ----

void require_empty_folder(const std::string& folder) {
  if (!path_exists(folder)) return;
  std::error_code unreadable;  // then writing reports why
  if (!is_folder(folder) || !std::filesystem::is_empty(folder, unreadable))
    fail(ExitCode::usage, "{} is there already and not an empty folder; choose another --output", folder);
}

void write_llama_folder(const std::string& folder, LanguageModel& model, const LlamaExport& options) {
  const ModelConfig& config = model.config();
  const std::vector<LlamaTensor> tensors = llama_tensors(config);
  require_empty_folder(folder);
  const bool halved = options.context.dtype == "bfloat16";
  std::vector<bf16> rounded(halved ? static_cast<size_t>(model.parameters().count()) : 0);
  bf16* next = rounded.data();
  const Weights weights(model);
  NamedTensors named;
  for (const LlamaTensor& tensor : tensors) {
    const Tensor rows = weights.rows_of(tensor);
    if (tensor.rotated) order_pairs(rows, config.head_dim, PairOrder::halves);
    named.emplace_back(tensor.name, halved ? Tensor(next, DType::bf16, tensor.shape) : rows);
    if (!halved) continue;
    next = std::transform(rows.as<float>(), rows.as<float>() + rows.numel(), next, to_bf16);
  }
  make_directories(folder);
  write_safetensors_set(folder, named, options.file_bytes, {{"format", "pt"}});
  for (const auto& [name, bytes] : options.files) write_file_atomic(folder + "/" + name, bytes);
  write_file_atomic(folder + "/" + config_file, llama_config(config, options.context));
}

}  // namespace kata
