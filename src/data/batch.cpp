#include "data/batch.h"

namespace kata {

BatchSource::~BatchSource() = default;

}  // namespace kata
