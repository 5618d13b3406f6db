// The models that every test of whole models goes over.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "support/small_model.h"

namespace kata::test {

struct Named {
  std::string name;
  ModelConfig config;

  friend void PrintTo(const Named& named, std::ostream* out) { *out << named.name; }
};

// A thread count until the end of the scope. Small models are fastest on one, by far where the machine is
// busy.
class Threads {
 public:
  explicit Threads(int count) : before_(thread_count()) { set_thread_count(count); }
  ~Threads() { set_thread_count(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

// Every preset with convolution, norm and RoPE on where the mixer allows them, tied; and the variations.
inline std::vector<Named> cases() {
  std::vector<Named> all;
  for (const std::string& preset : preset_names()) {
    MixerConfig m = mixer(preset);
    if (m.mamba2()) {
      m.state = 6;
    } else if (!m.softmax()) {
      m.conv = 3;
      m.rope_base = 100;  // orthant and lorentz too: the code path is theirs as well
    }
    all.push_back({preset, small_config(m)});
  }
  MixerConfig m = mixer("kata_m2");
  m.conv = 4;
  all.push_back({"untied", small_config(m)});
  all.back().config.tie_embeddings = false;
  m.qk_norm = "l2";
  all.push_back({"l2", small_config(m)});
  all.push_back({"grouped", small_config(m)});
  all.back().config.kv_heads = 1;
  m.qk_norm = "none";
  m.conv = 0;
  all.push_back({"bare", small_config(m)});
  m.form = "chunked";
  m.chunk = 4;
  all.push_back({"chunked", small_config(m)});
  m.form = "recurrent";
  all.push_back({"recurrent", small_config(m)});
  all.push_back({"hybrid", small_config(m)});
  all.back().config.mixers = {mixer("softmax"), mixer("kata_s2")};
  m = mixer("gateddeltakata_m2");
  m.delta_scale = 0.5;
  m.output_gate = true;
  m.chunk = 4;
  all.push_back({"delta_grouped", small_config(m)});
  all.back().config.kv_heads = 1;
  m.form = "recurrent";
  all.push_back({"delta_recurrent", small_config(m)});
  m = mixer("gatedkata_m2");
  m.form = "chunked";
  m.chunk = 4;
  all.push_back({"gated_chunked_grouped", small_config(m)});
  all.back().config.kv_heads = 1;
  all.push_back({"hybrid_gated", small_config(m)});
  all.back().config.mixers = {mixer("gated_deltanet"), mixer("softmax")};
  m = mixer("mamba2");
  m.state = 6;
  all.push_back({"hybrid_three", small_config(m)});
  all.back().config.layers = 3;
  all.back().config.kv_heads = 1;
  all.back().config.mixers = {mixer("softmax"), m, mixer("deltakata_m2")};
  return all;
}

// Weights ten times their start, so that no gradient is lost among rounding errors.
inline void spread(LanguageModel& model) {
  dispatch_float(model.parameters().dtype(), [&]<class T>() {
    for (const Parameter& p : model.parameters().all()) {
      const bool matrix = p.shape.rank() == 2 && p.decay;
      for (int64_t i = 0; i < p.shape.numel(); ++i)
        p.value.as<T>()[i] *= static_cast<T>(matrix ? 10 : 1 + 0.02 * static_cast<double>(i % 7));
    }
  });
}

}  // namespace kata::test
