#include "ops/embedding.h"

#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
class CudaEmbedding : public test::GpuTest {};

// Every `often`-th row has another id than 1; 0: none.
std::vector<int32_t> ids_of(int64_t rows, int64_t vocab, int64_t often) {
  const Philox random(4, stream_test);
  std::vector<int32_t> ids;
  for (int64_t r = 0; r < rows; ++r)
    ids.push_back(often > 0 && r % often == 0 ? static_cast<int32_t>(random.below(
                                                    static_cast<uint64_t>(r), static_cast<uint64_t>(vocab)))
                                              : static_cast<int32_t>(std::min<int64_t>(1, vocab - 1)));
  return ids;
}

TEST_F(CudaEmbedding, RowsAndTheirGradients) {
  struct Case {
    int64_t rows, width, vocab, often;
  };
  for (const auto& [rows, width, vocab, often] :
       {Case{1, 8, 1, 1}, Case{31, 5, 7, 1}, Case{32, 4, 3, 0}, Case{33, 64, 2, 1}, Case{1025, 16, 40, 1},
        Case{3000, 24, 2100, 2}, Case{2500, 12, 5, 0}, Case{70, 1028, 9, 3}}) {
    SCOPED_TRACE(fmt::format("{} x {} vocab {} every {}", rows, width, vocab, often));
    GpuTrial trial;
    trial.data("table", {vocab, width})
        .data("dy", {rows, width})
        .ids("ids", {rows}, ids_of(rows, vocab, often));
    trial.result("y", {rows, width}).wide_result("dtable", {vocab, width});
    trial.fill("dtable", test::random_normal(static_cast<size_t>(vocab * width), 9));
    trial.tolerance("dtable", {1e-5, 1e-5});  // sums of up to 2,500 rows in fp32
    trial.run([](Context& ctx, GpuTrial::Tensors& t) {
      embedding_forward(ctx, t["y"], t["table"], t["ids"]);
      embedding_backward(ctx, t["dtable"], t["dy"], t["ids"]);
    });
  }
}

}  // namespace
}  // namespace kata
