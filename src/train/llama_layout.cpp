#include "train/llama_layout.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace kata {

using nlohmann::json;

namespace {

// ---- what Llama has ----

void refuse_other_layers(const ModelConfig& model) {
  constexpr const char* remedy =
      "only mixer: {preset: softmax} in every layer can be exported, as in configs/lm340m_softmax.yaml";
  const MixerConfig& first = model.mixers.at(0);
  for (size_t i = 0; i < model.mixers.size(); ++i) {
    const MixerConfig& mixer = model.mixers[i];
    if (!mixer.softmax())
      fail(ExitCode::usage, "model.mixer: layer {} is {}, which the Llama layout does not have; {}", i,
           mixer.preset.empty() ? "map " + mixer.map : mixer.preset, remedy);
    if (!mixer.rope_base)
      fail(ExitCode::usage,
           "model.mixer: layer {} has rope: none, but Llama rotates in every layer; train one with rope: "
           "{{base: 10000}}, the default of softmax",
           i);
    if (mixer.rope_base != first.rope_base)
      fail(ExitCode::usage,
           "model.mixer: layer {} has the rope base {}, layer 0 {}, but Llama has one for all layers; train "
           "one with a single mixer: {{preset: softmax, rope: {{base: 10000}}}}",
           i, *mixer.rope_base, *first.rope_base);
  }
}

// ---- their config.json ----

// Reads keys of one object, which it names in messages.
class Keys {
 public:
  Keys(const json& object, std::string path, std::string prefix = "")
      : object_(object), path_(std::move(path)), prefix_(std::move(prefix)) {}

  // Null for a key that is absent or null.
  const json& at(const char* key) const {
    static const json none;
    const auto found = object_.find(key);
    return found == object_.end() ? none : *found;
  }
  template <class... Args>
  [[noreturn]] void reject(const char* key, fmt::format_string<Args...> format, Args&&... args) const {
    fail(ExitCode::data, "{}: {}{}: {}", path_, prefix_, key,
         fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void expected(const char* key, const std::string& what) const {
    if (at(key).is_null()) reject(key, "is missing; expected {}", what);
    reject(key, "expected {}, found {}", what, shown(at(key)));
  }
  static std::string shown(const json& value) {
    std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    return text.size() <= 60 ? text : text.substr(0, 60) + "...";
  }

  // fallback 0: the key must be there.
  int64_t integer(const char* key, int64_t high, int64_t fallback = 0) const {
    const json& value = at(key);
    if (value.is_null() && fallback > 0) return fallback;
    const bool usable = value.is_number_unsigned() && value.get<uint64_t>() >= 1 &&
                        value.get<uint64_t>() <= static_cast<uint64_t>(high);
    if (!usable) expected(key, fmt::format("a whole number from 1 to {}", high));
    return value.get<int64_t>();
  }
  double positive(const char* key, double fallback) const {
    const json& value = at(key);
    if (value.is_null()) return fallback;
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() <= 0)
      expected(key, "a number above 0");
    return value.get<double>();
  }
  bool flag(const char* key, bool fallback) const {
    const json& value = at(key);
    if (value.is_null()) return fallback;
    if (!value.is_boolean()) expected(key, "true or false");
    return value.get<bool>();
  }
  // A token id, a list of them, or null.
  nlohmann::ordered_json ids(const char* key) const {
    const auto usable = [](const json& value) {
      return value.is_number_unsigned() && value.get<uint64_t>() <= INT32_MAX;
    };
    const json& value = at(key);
    if (!value.is_null() && !usable(value) &&
        !(value.is_array() && std::all_of(value.begin(), value.end(), usable)))
      expected(key, "a token id, a list of them or null");
    return value;
  }
  // A key that changes the function unless it has this value, or is absent.
  void only(const char* key, const json& value) const {
    if (!at(key).is_null() && at(key) != value)
      reject(key, "{} is not supported, only {}", shown(at(key)), shown(value));
  }

 private:
  const json& object_;
  std::string path_, prefix_;
};

// Newer files have rope_parameters: {rope_theta, rope_type}; older ones rope_theta beside rope_scaling: null,
// or {type or rope_type, factor, ...}.
double rope_base(const Keys& keys, const std::string& path) {
  double base = keys.positive("rope_theta", 10000);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (keys.at(key).is_null()) continue;
    if (!keys.at(key).is_object()) keys.expected(key, "an object, or null");
    const Keys rope(keys.at(key), path, std::string(key) + ".");
    rope.only("rope_type", "default");
    rope.only("type", "default");
    rope.only("partial_rotary_factor", 1.0);
    base = rope.positive("rope_theta", base);
  }
  return base;
}

// What the layers of other architectures have and ours do not.
void refuse_other_functions(const Keys& keys) {
  keys.only("model_type", "llama");
  keys.only("architectures", json::array({"LlamaForCausalLM"}));
  if (keys.at("model_type").is_null() && keys.at("architectures").is_null())
    keys.reject("architectures", "is missing; expected [\"LlamaForCausalLM\"]");
  keys.only("hidden_act", "silu");
  for (const char* key : {"attention_bias", "mlp_bias"}) keys.only(key, false);
  keys.only("partial_rotary_factor", 1.0);
  for (const char* key : {"sliding_window", "quantization_config"})
    if (!keys.at(key).is_null()) keys.reject(key, "{} is not supported", Keys::shown(keys.at(key)));
}

}  // namespace

std::vector<LlamaTensor> llama_tensors(const ModelConfig& model) {
  refuse_other_layers(model);
  const int64_t q = model.heads * model.head_dim, kv = model.kv_heads * model.head_dim;
  const Shape vector{model.hidden}, table{model.vocab, model.hidden};
  std::vector<LlamaTensor> all = {{"model.embed_tokens.weight", table, "embedding.weight"}};
  for (int64_t i = 0; i < model.layers; ++i) {
    const std::string there = fmt::format("model.layers.{}.", i), here = fmt::format("blocks.{}.", i);
    const auto add = [&](const char* name, const Shape& shape, const char* parameter, int64_t first = 0,
                         bool rotated = false) {
      all.push_back({there + name + ".weight", shape, here + parameter + ".weight", first, rotated});
    };
    add("input_layernorm", vector, "mixer_norm");
    add("self_attn.q_proj", {q, model.hidden}, "mixer.qkv", 0, true);
    add("self_attn.k_proj", {kv, model.hidden}, "mixer.qkv", q, true);
    add("self_attn.v_proj", {kv, model.hidden}, "mixer.qkv", q + kv);
    add("self_attn.o_proj", {model.hidden, q}, "mixer.out");
    add("post_attention_layernorm", vector, "mlp_norm");
    add("mlp.gate_proj", {model.mlp, model.hidden}, "mlp.gate_up");
    add("mlp.up_proj", {model.mlp, model.hidden}, "mlp.gate_up", model.mlp);
    add("mlp.down_proj", {model.hidden, model.mlp}, "mlp.down");
  }
  all.push_back({"model.norm.weight", vector, "norm.weight"});
  if (!model.tie_embeddings) all.push_back({"lm_head.weight", table, "head.weight"});
  return all;
}

void order_pairs(const Tensor& rows, int64_t head_dim, PairOrder order) {
  KATA_CHECK(rows.dtype() == DType::f32 && rows.contiguous() && rows.rank() == 2 && head_dim % 2 == 0 &&
                 rows.dim(0) % head_dim == 0,
             "{} in heads of {}", rows.shape().str(), head_dim);
  const int64_t width = rows.dim(1), half = head_dim / 2;
  std::vector<float> before(static_cast<size_t>(head_dim * width));
  const auto row_bytes = static_cast<size_t>(width) * sizeof(float);
  for (int64_t head = 0; head < rows.dim(0) / head_dim; ++head) {
    float* after = rows.as<float>() + head * head_dim * width;
    std::memcpy(before.data(), after, before.size() * sizeof(float));
    for (int64_t i = 0; i < half; ++i)
      for (int64_t part = 0; part < 2; ++part) {
        const int64_t neighbour = 2 * i + part, halved = i + part * half;
        const bool to_halves = order == PairOrder::halves;
        std::memcpy(after + (to_halves ? halved : neighbour) * width,
                    before.data() + (to_halves ? neighbour : halved) * width, row_bytes);
      }
  }
}

std::string llama_config(const ModelConfig& model, const LlamaContext& context) {
  const nlohmann::ordered_json config = {{"architectures", {"LlamaForCausalLM"}},
                                         {"model_type", "llama"},
                                         {"vocab_size", model.vocab},
                                         {"hidden_size", model.hidden},
                                         {"intermediate_size", model.mlp},
                                         {"num_hidden_layers", model.layers},
                                         {"num_attention_heads", model.heads},
                                         {"num_key_value_heads", model.kv_heads},
                                         {"head_dim", model.head_dim},
                                         {"hidden_act", "silu"},
                                         {"attention_bias", false},
                                         {"mlp_bias", false},
                                         {"rms_norm_eps", model.norm_eps},
                                         {"rope_theta", model.mixers.at(0).rope_base.value()},
                                         {"rope_scaling", nullptr},
                                         {"max_position_embeddings", context.longest},
                                         {"tie_word_embeddings", model.tie_embeddings},
                                         {"bos_token_id", context.bos},
                                         {"eos_token_id", context.eos},
                                         {"torch_dtype", context.dtype}};
  return config.dump(2) + "\n";
}

ModelConfig read_llama_config(const json& config, const std::string& path) {
  const Keys keys(config, path);
  refuse_other_functions(keys);
  ModelConfig model;
  model.vocab = keys.integer("vocab_size", 1 << 24);
  model.hidden = keys.integer("hidden_size", 1 << 20);
  model.mlp = keys.integer("intermediate_size", 1 << 24);
  model.layers = keys.integer("num_hidden_layers", 10000);
  model.heads = keys.integer("num_attention_heads", 65536);
  model.kv_heads = keys.integer("num_key_value_heads", 65536, model.heads);
  if (model.heads % model.kv_heads != 0)
    keys.reject("num_key_value_heads", "{} does not divide the {} attention heads", model.kv_heads,
                model.heads);
  if (keys.at("head_dim").is_null() && model.hidden % model.heads != 0)
    keys.reject("num_attention_heads", "{} does not divide the hidden_size {}, and there is no head_dim",
                model.heads, model.hidden);
  model.head_dim = keys.integer("head_dim", 65536, std::max<int64_t>(model.hidden / model.heads, 1));
  if (model.head_dim % 2 != 0)
    keys.reject("head_dim", "{} is odd, but rotary positions turn pairs", model.head_dim);
  model.tie_embeddings = keys.flag("tie_word_embeddings", false);
  model.norm_eps = keys.positive("rms_norm_eps", 1e-6);
  if (model.norm_eps > 1) keys.expected("rms_norm_eps", "a number above 0 and up to 1");
  MixerConfig mixer = mixer_of("softmax");
  mixer.rope_base = rope_base(keys, path);
  model.mixers = {mixer};
  resolve_model(model);
  return model;
}

LlamaContext read_llama_context(const json& config, const std::string& path) {
  const Keys keys(config, path);
  LlamaContext context;
  context.longest = keys.integer("max_position_embeddings", int64_t{1} << 31, 2048);
  context.bos = keys.ids("bos_token_id");
  context.eos = keys.ids("eos_token_id");
  return context;
}

}  // namespace kata
