// The GPU's side of a training step: the ids of the batch, the two numbers that the host reads, and the work
// of the step, recorded once for each kind of batch and launched again as a whole.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "base/context.h"
#include "data/batch.h"

namespace kata {

class GpuStep {
 public:
  struct Ids {
    Tensor inputs, targets, starts;  // int32 [rows, length] on the GPU; starts undefined without documents
  };
  struct Results {
    double loss_sum = 0, gradient_norm = 0;
  };

  // max_tokens: of the largest batch. Takes bytes(max_tokens) of the arena.
  GpuStep(const Gpu& gpu, Arena& arena, int64_t max_tokens);
  static size_t bytes(int64_t max_tokens);

  // Sends the batch on its way; results() of the step before has been called.
  Ids upload(const Batch& batch);
  // float64 [1] each, for the body to fill.
  const Tensor& loss_sum() const { return loss_sum_; }
  const Tensor& gradient_norm() const { return gradient_norm_; }

  // What steps must have in common to be the same work: shape, whether there are documents, and the bound on
  // scored tokens that the body has used.
  using Kind = std::tuple<int64_t, int64_t, bool, int64_t>;
  // Queues the body: the first time as it stands, then as a graph.
  void run(const Kind& kind, const std::function<void()>& body);
  Results results();  // waits

 private:
  struct Recorded {
    bool seen = false;
    std::unique_ptr<GpuGraph> graph;
  };

  const Gpu& gpu_;
  int64_t max_tokens_;
  Tensor ids_, loss_sum_, gradient_norm_;  // ids: [3, max_tokens]
  std::unique_ptr<void, FreePinned> staged_ids_, staged_results_;
  std::map<Kind, Recorded> recorded_;
};

}  // namespace kata
