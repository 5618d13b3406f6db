#include "ops/global_norm.h"

#include "support/gpu_trial.h"

namespace kata {
namespace {

class CudaGlobalNorm : public test::GpuTest {
 protected:
  // {norm, sum} of x, which starts `offset` elements into an allocation.
  static std::pair<double, double> on_gpu(const std::vector<float>& x, int64_t offset) {
    const Gpu& gpu = *test::test_gpu();
    const auto n = static_cast<int64_t>(x.size());
    const auto memory = device_memory((x.size() + 16) * sizeof(float)), results = device_memory(16);
    auto* data = static_cast<float*>(memory.get()) + offset;
    gpu.upload(data, x.data(), x.size() * sizeof(float));
    const Tensor flat(data, DType::f32, {n});
    const Tensor norm(results.get(), DType::f64, {1}),
        total(static_cast<double*>(results.get()) + 1, DType::f64, {1});
    Arena arena(1 << 20, Arena::Memory::gpu);
    Context ctx(arena, {Device::cuda, test::test_gpu()});
    global_norm_to(ctx, norm, flat);
    sum_to(ctx, total, flat);
    double found[2];
    gpu.download(found, results.get(), sizeof(found));
    gpu.synchronise();
    return {found[0], found[1]};
  }
};

TEST_F(CudaGlobalNorm, LengthAndSum) {
  for (const size_t n : {1, 5, 4096, 70001, 3000000})
    for (const int64_t offset : {0, 1}) {
      const std::vector<float> x = test::random_normal<float>(n, n);
      double squares = 0, sum = 0;
      for (const float v : x) {
        squares += static_cast<double>(v) * static_cast<double>(v);
        sum += static_cast<double>(v);
      }
      const auto [norm, total] = on_gpu(x, offset);
      EXPECT_NEAR(norm, std::sqrt(squares), 1e-12 * std::sqrt(squares)) << n;
      EXPECT_NEAR(total, sum, 1e-12 * std::sqrt(squares) * std::sqrt(static_cast<double>(n))) << n;
      EXPECT_EQ(on_gpu(x, offset), std::make_pair(norm, total)) << "to the bit";
    }
}

TEST_F(CudaGlobalNorm, WhatIsNotFiniteShows) {
  std::vector<float> x(5000, 1e30f);
  EXPECT_NEAR(on_gpu(x, 0).first, 1e30 * std::sqrt(5000.0), 1e25);  // floats cannot overflow the sum
  x[4321] = NAN;
  EXPECT_TRUE(std::isnan(on_gpu(x, 0).first));
  x[4321] = INFINITY;
  EXPECT_TRUE(std::isinf(on_gpu(x, 0).first));
}

}  // namespace
}  // namespace kata
