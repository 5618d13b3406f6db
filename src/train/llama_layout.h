// A softmax model of ours and the Llama layout of Hugging Face, which hold the same numbers:
//
//   here                              there
//   embedding.weight                  model.embed_tokens.weight
//   blocks.N.mixer_norm.weight        model.layers.N.input_layernorm.weight
//   blocks.N.mixer.qkv.weight         model.layers.N.self_attn.{q,k,v}_proj.weight: rows of q, then k, then v
//   blocks.N.mixer.out.weight         model.layers.N.self_attn.o_proj.weight
//   blocks.N.mlp_norm.weight          model.layers.N.post_attention_layernorm.weight
//   blocks.N.mlp.gate_up.weight       model.layers.N.mlp.{gate,up}_proj.weight: rows of gate, then up
//   blocks.N.mlp.down.weight          model.layers.N.mlp.down_proj.weight
//   norm.weight                       model.norm.weight
//   head.weight                       lm_head.weight, neither with tied embeddings
//
// We rotate the neighbours (2i, 2i+1) of a head by the angle i, they rotate i and i + head_dim / 2: the rows
// of q and k of a head change their order.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/safetensors.h"
#include "config/model_config.h"

namespace kata {

// A tensor of their layout as rows of one of ours.
struct LlamaTensor {
  std::string name;       // there
  Shape shape;            // there
  std::string parameter;  // here
  int64_t first_row = 0;  // of the parameter; shape[0] rows
  bool rotated = false;   // rows of heads that RoPE turns
};

// All tensors of a model, in their order: ExitCode::usage where Llama cannot express it, with the setting
// that is in the way and the one that is not.
std::vector<LlamaTensor> llama_tensors(const ModelConfig& model);

enum class PairOrder { neighbours, halves };
// Puts the rows of a rotated tensor, in place, from the other order into this one. rows: [heads * head_dim,
// width] of floats.
void order_pairs(const Tensor& rows, int64_t head_dim, PairOrder order);

// What stands in their config.json beside the model.
struct LlamaContext {
  std::string dtype = "float32";  // float32, bfloat16
  int64_t longest = 0;            // max_position_embeddings
  nlohmann::ordered_json bos;     // token ids, null where there is none
  nlohmann::ordered_json eos;
};

// The text of config.json.
std::string llama_config(const ModelConfig& model, const LlamaContext& context);

// The model of a config.json, resolved. ExitCode::data with `path` and the key for what is missing, out of
// range, or no part of our layer.
ModelConfig read_llama_config(const nlohmann::json& config, const std::string& path);
// The positions that the model was made for, and its token ids; likewise.
LlamaContext read_llama_context(const nlohmann::json& config, const std::string& path);

}  // namespace kata
