// What every preset costs: the table of katatrain --list-mixers.
#pragma once

#include <string>

#include "config/model_config.h"

namespace kata {

// One line a preset, for one layer of the given sizes (hidden, heads, head_dim, kv_heads): the point of the
// grid, the numbers that a sequence leaves in its state, parameters, and operations of a token. Presets that
// do not fit the sizes say why.
std::string mixer_table(const ModelConfig& sizes);

// The sizes of the 340M model, for a table without a config.
ModelConfig sizes_of_340m();

}  // namespace kata
