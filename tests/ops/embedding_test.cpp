#include "ops/embedding.h"

#include "base/parallel.h"
#include "ops/oracle/embedding.h"
#include "support/compare.h"
#include "support/gradient.h"
#include "support/op_runner.h"
#include "support/sparse.h"

namespace kata {
namespace {

using test::cast;
using test::close;
using test::random_normal;
using test::tensor;

struct Case {
  int64_t rows, width, vocab;
};

std::vector<int32_t> random_ids(int64_t rows, int64_t vocab, uint64_t seed) {
  const Philox random(seed, stream_test);
  std::vector<int32_t> ids(static_cast<size_t>(rows));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>(random.below(i, static_cast<uint64_t>(vocab)));
  return ids;
}

template <class T>
struct Result {
  std::vector<T> y, dtable;
};

// The gradient is added to `start`.
template <class T>
Result<T> run(std::vector<T> table, std::vector<int32_t> ids, std::vector<T> dy, int64_t width, T start = 0) {
  const int64_t rows = static_cast<int64_t>(ids.size()), vocab = static_cast<int64_t>(table.size()) / width;
  Result<T> r{std::vector<T>(dy.size()), std::vector<T>(table.size(), start)};
  test::run_op([&](Context& ctx) {
    embedding_forward(ctx, tensor(r.y, {rows, width}), tensor(table, {vocab, width}), tensor(ids, {rows}));
    embedding_backward(ctx, tensor(r.dtable, {vocab, width}), tensor(dy, {rows, width}), tensor(ids, {rows}));
  });
  return r;
}

class Embedding : public ::testing::TestWithParam<Case> {
 protected:
  int64_t width = GetParam().width;
  std::vector<double> table = random_normal(static_cast<size_t>(GetParam().vocab * width), 1);
  std::vector<double> dy = random_normal(static_cast<size_t>(GetParam().rows * width), 2);
  std::vector<int32_t> ids = random_ids(GetParam().rows, GetParam().vocab, 3);
};

TEST_P(Embedding, DoubleAgainstTheOracleAndItsComplexStep) {
  const auto r = run<double>(table, ids, dy, width);
  EXPECT_EQ(r.y, oracle::embedding<double>(table, ids, static_cast<size_t>(width)));
  const auto f = [&](const test::ComplexInputs& in) {
    return test::weighted_sum(oracle::embedding<test::Complex>(in[0], ids, static_cast<size_t>(width)), dy);
  };
  EXPECT_TRUE(close(r.dtable, test::complex_step(f, {table}, 0), 1e-14));
}

TEST_P(Embedding, FloatAgainstDouble) {
  const auto f = run<float>(cast<float>(table), ids, cast<float>(dy), width);
  const auto d = run<double>(cast<double>(cast<float>(table)), ids, cast<double>(cast<float>(dy)), width);
  EXPECT_EQ(cast<double>(f.y), d.y);
  EXPECT_TRUE(close(f.dtable, d.dtable, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Shapes, Embedding,
                         ::testing::Values(Case{1, 1, 1}, Case{7, 5, 3}, Case{40, 33, 2}, Case{3, 70, 50}));

TEST(EmbeddingOp, CentralDifference) {
  const auto table = random_normal(12, 1), dy = random_normal(10, 2), direction = random_normal(12, 3);
  const std::vector<int32_t> ids = {2, 0, 2, 5, 1};
  const test::RealFunction f = [&](const std::vector<std::vector<double>>& in) {
    return test::weighted_sum(run<double>(in[0], ids, dy, 2).y, dy);
  };
  const auto r = run<double>(table, ids, dy, 2);
  EXPECT_NEAR(test::central_difference(f, {table}, 0, direction, 1e-3),
              test::weighted_sum(r.dtable, direction), 1e-9);
}

TEST(EmbeddingOp, GradientsAreAddedAndOtherRowsKept) {
  const auto r =
      run<float>(std::vector<float>(6), {1, 1}, std::vector<float>{1, 2, 10, 20}, 2, /*start=*/100);
  EXPECT_EQ(r.dtable, (std::vector<float>{100, 100, 111, 122, 100, 100}));
}

TEST(EmbeddingOp, ThreadCountChangesNoBit) {
  const auto table = random_normal<float>(50 * 100, 7), dy = random_normal<float>(1000 * 100, 8);
  const auto ids = random_ids(1000, 50, 9);
  set_thread_count(1);
  const auto one = run<float>(table, ids, dy, 100);
  set_thread_count(2);
  const auto two = run<float>(table, ids, dy, 100);
  EXPECT_EQ(one.y, two.y);
  EXPECT_EQ(one.dtable, two.dtable);
}

TEST(EmbeddingOp, AnIdOutsideTheTableIsRefused) {
  const std::vector<float> table(6), dy(2);
  for (const int32_t id : {-1, 3, 1 << 30}) EXPECT_ANY_THROW(run<float>(table, {id}, dy, 2)) << id;
  std::vector<float> dtable(6), g(2, 1);
  std::vector<int32_t> ids = {3};
  Arena arena(0);
  Context ctx{arena};
  EXPECT_ANY_THROW(embedding_backward(ctx, tensor(dtable, {3, 2}), tensor(g, {1, 2}), tensor(ids, {1})));
}

TEST(EmbeddingOp, LargeTable) {
  const int64_t width = 1024, vocab = (int64_t{1} << 21) + 5;  // above 2^31 elements
  test::SparseArray<float> table(vocab * width), dtable(vocab * width);
  KATA_SKIP_UNLESS_MAPPED(table);
  KATA_SKIP_UNLESS_MAPPED(dtable);
  table[vocab * width - 1] = 3;
  dtable[vocab * width - 1] = 1;
  std::vector<int32_t> ids = {static_cast<int32_t>(vocab - 1)};
  std::vector<float> y(static_cast<size_t>(width)), dy(y.size(), 2);
  Arena arena(0);
  Context ctx{arena};
  embedding_forward(ctx, tensor(y, {1, width}), table.tensor({vocab, width}), tensor(ids, {1}));
  embedding_backward(ctx, dtable.tensor({vocab, width}), tensor(dy, {1, width}), tensor(ids, {1}));
  EXPECT_EQ(y.back(), 3);
  EXPECT_EQ(dtable[vocab * width - 1], 3);
  EXPECT_EQ(dtable[(vocab - 1) * width], 2);
}

}  // namespace
}  // namespace kata
