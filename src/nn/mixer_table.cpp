#include "nn/mixer_table.h"

#include "base/error.h"
#include "nn/mixer.h"

namespace kata {

namespace {

constexpr int64_t length = 2048;  // tokens after which softmax is counted

struct Cost {
  int64_t state = 0, parameters = 0, operations = 0;
};

Cost cost_of(const ModelConfig& sizes, const std::string& preset) {
  ModelConfig model = sizes;
  model.layers = 1;
  model.mixers = {mixer_of(preset)};
  resolve_model(model);
  Parameters parameters(DType::f32);
  const auto mixer = make_mixer(parameters, "mixer", model, model.mixers[0]);
  return {mixer->state_entries(length), parameters.count(), mixer->operations(length)};
}

std::string text_or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

std::string point_text(const Preset& row) {
  const bool softmax = row.map[0] == '\0';
  return fmt::format("{:<18}{:<13}{:>6}  {:<7}{:<7}{:<11}", row.name, text_or_dash(row.map),
                     has_groups(row.map) ? std::to_string(row.groups) : "-", softmax ? "-" : row.update,
                     softmax ? "-" : row.decay, row.read);
}

}  // namespace

ModelConfig sizes_of_340m() {
  ModelConfig sizes;
  sizes.hidden = 1024;
  sizes.heads = 16;
  return sizes;
}

std::string mixer_table(const ModelConfig& sizes) {
  std::string out =
      fmt::format("{:<18}{:<13}{:>6}  {:<7}{:<7}{:<11}{:>10}{:>12}{:>12}  {}\n", "preset", "map", "groups",
                  "update", "decay", "read", "state", "parameters", "operations", "mixer");
  for (const Preset& row : presets()) {
    out += point_text(row);
    try {
      const Cost cost = cost_of(sizes, row.name);
      out +=
          fmt::format("{:>10}{:>12}{:>12}  {}\n", cost.state, cost.parameters, cost.operations, row.summary);
    } catch (const Error& error) {
      out += fmt::format("  does not fit: {}\n", error.what());
    }
  }
  return out +
         fmt::format(
             "one layer, hidden {}, {} heads of {}; state: numbers that a sequence leaves, the mass "
             "included\n"
             "operations: of one token in the recurrent form, two for a weight; softmax: after {} tokens\n",
             sizes.hidden, sizes.heads, sizes.head_dim > 0 ? sizes.head_dim : sizes.hidden / sizes.heads,
             length);
}

}  // namespace kata
