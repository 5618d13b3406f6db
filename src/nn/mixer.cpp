#include "nn/mixer.h"

#include "nn/mamba2_mixer.h"
#include "nn/qkv_mixer.h"

namespace kata {

std::unique_ptr<Mixer> make_mixer(Parameters& parameters, const std::string& name, const ModelConfig& model,
                                  const MixerConfig& mixer) {
  if (mixer.mamba2()) return std::make_unique<Mamba2Mixer>(parameters, name, model, mixer);
  return std::make_unique<QkvMixer>(parameters, name, model, mixer);
}

}  // namespace kata
