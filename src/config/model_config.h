// The model: sizes of the decoder, and one mixer per layer (MATH: layers and models).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/origins.h"
#include "config/presets.h"
#include "config/schema.h"

namespace kata {

// One layer's mixer: a preset, or the point of the grid spelled out. After loading every field is resolved.
struct MixerConfig {
  std::string preset;  // row of presets.h; empty when the point is given
  std::string map;     // identity, orthant, lorentz, psd, psd_sum, hermitian, quaternionic; empty for softmax
  int64_t groups = 1;  // of psd and psd_sum; they divide head_dim
  std::string update = "add";       // add, delta
  std::string decay = "none";       // none, scalar
  std::string read;                 // normalised, raw, softmax
  int64_t conv = 0;                 // width of the causal convolution on q, k and v; 0 = none
  std::string qk_norm = "none";     // none, rms, l2
  std::optional<double> rope_base;  // YAML: `rope: {base: 10000}` or `rope: none`
  bool output_gate = false;         // RMSNorm(o) * SiLU(g) before the output projection
  double delta_scale = 1;           // c of the delta rule
  int64_t state = 0;          // key width of Mamba-2; 0 for the others, whose keys are as wide as a head
  std::string form = "auto";  // auto, quadratic, chunked, recurrent: training form of the same function
  int64_t chunk = 64;         // tokens per chunk of the chunked form

  bool softmax() const { return read == "softmax"; }
  bool delta() const { return update == "delta"; }
  bool decays() const { return decay == "scalar"; }
  bool mamba2() const { return preset == "mamba2"; }  // a layer of its own, by its name only
  void take_point();                                  // the preset's row; nothing for a point spelled out
  void take_defaults();                               // the rest, as the point's layer has it (MATH: layers)

  // One mixer of each kind of defaults, for the reference.
  static std::vector<MixerConfig> examples();

  template <class Visitor>
  void visit(Visitor& v) {
    v.field("preset", preset, none_or_one_of(preset_names()),
            "a named mixer (katatrain --list-mixers); or leave it out and give map and read");
    if (v.reading) take_point();
    v.field("map", map, none_or_one_of(map_names()), "feature map of queries and keys; none for softmax");
    v.field("groups", groups, between(1, 4096), "groups of psd and psd_sum; they divide head_dim");
    v.field("update", update, one_of(update_names()), "how a token enters the state");
    v.field("decay", decay, one_of(decay_names()), "how the state fades");
    v.field("read", read, none_or_one_of(read_names()), "how a query reads the state");
    if (v.reading) take_defaults();
    v.field("conv", conv, zero_or(2, 8),
            "width, in tokens, of the causal convolution with SiLU on q, k and v; 0 for none");
    v.field("qk_norm", qk_norm, one_of({"none", "rms", "l2"}), "norm of each head's q and k");
    v.switched("rope", "base", rope_base, positive(), "rotary positions: {base: B}, or none");
    v.field("output_gate", output_gate, "a gate on what is read: RMSNorm(o) * SiLU(g), g a projection");
    v.field("delta_scale", delta_scale, up_to_one(),
            "factor of the dot products of the delta rule; below 1 a write erases only a part");
    v.field("state", state, between(0, 65536), "width of Mamba-2's keys; 0 for every other mixer");
    v.field("form", form, one_of({"auto", "quadratic", "chunked", "recurrent"}),
            "training form; every form computes the same function");
    v.field("chunk", chunk, between(1, 4096), "tokens per chunk of the chunked form");
  }
};

struct ModelConfig {
  int64_t hidden = 128;
  int64_t layers = 4;
  int64_t heads = 2;
  int64_t head_dim = 0;  // resolved to hidden / heads
  int64_t kv_heads = 0;  // resolved to heads
  int64_t mlp = 344;
  int64_t vocab = 0;  // 0: the tokenizer's; resolved where a task gives it
  bool tie_embeddings = true;
  double norm_eps = 1e-6;           // of every RMSNorm
  std::vector<MixerConfig> mixers;  // YAML key `mixer`; resolved to one entry per layer

  template <class Visitor>
  void visit_sizes(Visitor& v) {  // all but the mixer: what a suite's models share
    v.field("hidden", hidden, between(1, 1 << 20), "width of the residual stream");
    v.field("layers", layers, between(1, 10000), "number of blocks");
    v.field("heads", heads, between(1, 65536), "query heads");
    v.field("head_dim", head_dim, between(0, 65536), "width of a head; 0 = hidden / heads");
    v.field("kv_heads", kv_heads, between(0, 65536),
            "key and value heads, each shared by heads / kv_heads query heads; 0 = heads");
    v.field("mlp", mlp, between(1, 1 << 24), "inner width of the SwiGLU");
    v.field("vocab", vocab, between(0, 1 << 24),
            "vocabulary size in tokens; 0 = the tokenizer's or the task's");
    v.field("tie_embeddings", tie_embeddings, "the output head is the embedding");
    v.field("norm_eps", norm_eps, up_to_one(), "what RMSNorm adds to the mean square of a row");
  }
  template <class Visitor>
  void visit(Visitor& v) {
    visit_sizes(v);
    v.one_or_list("mixer", mixers, "one mixer for all layers, or a list with one per layer");
  }
};

// A preset with its defaults. ExitCode::usage with the nearest name when there is none.
MixerConfig mixer_of(const std::string& preset);

// Fills head_dim, kv_heads and one mixer per layer, and checks every rule between fields. ExitCode::usage
// with one line that names the key; `model_key` and `mixer_key` are the dotted keys of the two in the config.
void resolve_model(ModelConfig& model, const std::string& model_key = "model",
                   const std::string& mixer_key = "model.mixer", const Origins& origins = Origins());

}  // namespace kata
