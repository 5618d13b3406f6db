// Runs an op as the trainer does: first on a planning arena, then on one of exactly the planned size.
#pragma once

#include <vector>

#include "base/context.h"

namespace kata::test {

// body(Context&) is called twice; the second call computes. Plan and use must agree.
template <class Body>
void run_op(Body&& body) {
  Arena plan;
  {
    Context ctx{plan};
    body(ctx);
  }
  Arena arena(plan.peak());
  Context ctx{arena};
  body(ctx);
  KATA_CHECK(arena.peak() == plan.peak(), "planned {} bytes, used {}", plan.peak(), arena.peak());
}

template <class T>
Tensor tensor(std::vector<T>& data, const Shape& shape) {
  KATA_CHECK(shape.numel() == static_cast<int64_t>(data.size()), "{} values for {}", data.size(),
             shape.str());
  return Tensor(data.data(), dtype_of<T>, shape);
}

}  // namespace kata::test
