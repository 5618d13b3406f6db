// An op on the GPU against the same call on the CPU in double, on the same inputs.
//
//   GpuTrial trial;                                       // "fp32" and "bf16" each
//   trial.data("x", {3, 64}).wide("weight", {64});        // what the op reads: elements, and Wide elements
//   trial.result("y", {3, 64}).wide_result("rstd", {3});  // what it writes: poisoned with NaN before
//   trial.run([&](Context& ctx, GpuTrial::Tensors& t) { rmsnorm_forward(ctx, t["y"], t["rstd"], ...); });
//
// Inputs are normal numbers rounded to the element type, or set by `fill`. A result that is filled is one
// that the op adds to. The call is planned, runs twice on the GPU, whose bits must agree, and once on the
// CPU. Every result is compared by its relative Frobenius error. Elements that the CPU leaves unwritten
// (views into wider rows) must stay so.
#pragma once

#include <cstring>
#include <functional>
#include <map>

#include "base/bf16.h"
#include "base/context.h"
#include "support/compare.h"

namespace kata::test {

// One GPU for the whole test program; null where none can be used.
inline Gpu* test_gpu() {
  static const std::unique_ptr<Gpu> gpu = [] {
    return gpu_problem().empty() ? std::make_unique<Gpu>(0) : nullptr;
  }();
  return gpu.get();
}

// To be the base of every test that needs a GPU.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_gpu() == nullptr) GTEST_SKIP() << gpu_problem();
  }
};

class GpuTrial {
 public:
  using Tensors = std::map<std::string, Tensor>;
  using Call = std::function<void(Context&, Tensors&)>;

  // Largest relative errors of a result, for data of each type; of Wide results too. One rounding to bf16 is
  // at most 2^-8.
  struct Tolerance {
    double fp32 = 2e-6, bf16 = 4e-3;
  };

  GpuTrial() = default;
  explicit GpuTrial(const Tolerance& tolerance) : tolerance_(tolerance) {}

  GpuTrial& data(const std::string& name, const Shape& shape, double scale = 1) {
    return add(name, shape, Kind::data, false, random_normal(count(shape), next_seed_++, scale));
  }
  GpuTrial& wide(const std::string& name, const Shape& shape, double scale = 1) {
    return add(name, shape, Kind::wide, false, random_normal(count(shape), next_seed_++, scale));
  }
  GpuTrial& ids(const std::string& name, const Shape& shape, const std::vector<int32_t>& values) {
    return add(name, shape, Kind::ids, false, cast<double>(values));
  }
  GpuTrial& result(const std::string& name, const Shape& shape) {
    return add(name, shape, Kind::data, true, std::vector<double>(count(shape), NAN));
  }
  GpuTrial& wide_result(const std::string& name, const Shape& shape) {
    return add(name, shape, Kind::wide, true, std::vector<double>(count(shape), NAN));
  }
  GpuTrial& id_result(const std::string& name, const Shape& shape) {
    return add(name, shape, Kind::ids, true, std::vector<double>(count(shape), -77));
  }
  // The values that an input, or a result that is added to, has before the call.
  GpuTrial& fill(const std::string& name, const std::vector<double>& values) {
    KATA_CHECK(values.size() == operands_.at(name).before.size(), "{} values for {}", values.size(), name);
    operands_.at(name).before = values;
    return *this;
  }
  // Of one result, instead of the trial's.
  GpuTrial& tolerance(const std::string& name, const Tolerance& tolerance) {
    tolerances_[name] = tolerance;
    return *this;
  }

  void run(const Call& call) {
    for (const DType type : {DType::f32, DType::bf16}) run(call, type);
  }
  // With elements of one type.
  void run(const Call& call, DType type) {
    SCOPED_TRACE(type == DType::bf16 ? "bf16" : "fp32");
    const auto expected = on_cpu(call, type);
    const auto found = on_gpu(call, type), again = on_gpu(call, type);
    for (const auto& [name, operand] : operands_) {
      if (!operand.result) continue;
      EXPECT_EQ(0, std::memcmp(found.at(name).data(), again.at(name).data(), found.at(name).size() * 8))
          << name << " differs from run to run";
      const auto own = tolerances_.find(name);
      const Tolerance& t = own == tolerances_.end() ? tolerance_ : own->second;
      compare(name, found.at(name), expected.at(name),
              operand.kind == Kind::ids ? 0
              : type == DType::bf16     ? t.bf16
                                        : t.fp32);
    }
  }

  // The values of the last run, for tests of their own.
  const std::vector<double>& gpu_values(const std::string& name) const { return last_gpu_.at(name); }
  const std::vector<double>& cpu_values(const std::string& name) const { return last_cpu_.at(name); }

 private:
  enum class Kind { data, wide, ids };
  struct Operand {
    Shape shape;
    Kind kind;
    bool result;
    std::vector<double> before;
  };
  using Values = std::map<std::string, std::vector<double>>;

  static size_t count(const Shape& shape) { return static_cast<size_t>(shape.numel()); }
  GpuTrial& add(const std::string& name, const Shape& shape, Kind kind, bool result,
                const std::vector<double>& before) {
    operands_[name] = {shape, kind, result, before};
    return *this;
  }

  static double rounded(double x, Kind kind, DType type) {
    const float single = static_cast<float>(x);
    return static_cast<double>(kind == Kind::data && type == DType::bf16 ? to_float(to_bf16(single))
                                                                         : single);
  }

  Values on_cpu(const Call& call, DType type) {
    std::map<std::string, std::vector<double>> numbers;
    std::map<std::string, std::vector<int32_t>> ids;
    Tensors null_tensors, tensors;
    for (const auto& [name, o] : operands_) {
      const DType element = o.kind == Kind::ids ? DType::i32 : DType::f64;
      void* data = nullptr;
      if (o.kind == Kind::ids) {
        ids[name] = cast<int32_t>(o.before);
        data = ids[name].data();
      } else {
        for (const double x : o.before) numbers[name].push_back(rounded(x, o.kind, type));
        data = numbers[name].data();
      }
      tensors[name] = Tensor(data, element, o.shape);
      null_tensors[name] = Tensor(nullptr, element, o.shape);
    }
    Arena plan;
    Context planning{plan};
    call(planning, null_tensors);
    Arena arena(plan.peak());
    Context ctx{arena};
    call(ctx, tensors);
    for (const auto& [name, values] : ids) numbers[name] = cast<double>(values);
    return last_cpu_ = numbers;
  }

  Values on_gpu(const Call& call, DType type) {
    const Gpu& gpu = *test_gpu();
    Tensors null_tensors, tensors;
    std::map<std::string, std::vector<std::byte>> host;
    std::vector<std::unique_ptr<void, FreeDevice>> memory;
    for (const auto& [name, o] : operands_) {
      const DType element = o.kind == Kind::ids ? DType::i32 : o.kind == Kind::wide ? DType::f32 : type;
      host[name] = encode(o.before, element);
      memory.push_back(device_memory(std::max<size_t>(host[name].size(), 16)));
      tensors[name] = Tensor(memory.back().get(), element, o.shape);
      null_tensors[name] = Tensor(nullptr, element, o.shape);
      gpu.upload(memory.back().get(), host[name].data(), host[name].size());
    }
    Arena plan;
    Context planning{plan, {Device::cuda, nullptr}};
    call(planning, null_tensors);
    Arena arena(plan.peak(), Arena::Memory::gpu);
    if (plan.peak() > 0) {  // scratch starts as NaN
      const std::vector<uint8_t> poison(plan.peak(), 0xFF);
      const Arena::Scope scope(arena);
      gpu.upload(arena.take("poison", DType::u8, {static_cast<int64_t>(poison.size())}).data(), poison.data(),
                 poison.size());
      gpu.synchronise();
    }
    Context ctx{arena, {Device::cuda, test_gpu()}};
    call(ctx, tensors);
    for (const auto& [name, tensor] : tensors)
      gpu.download(host[name].data(), tensor.data(), host[name].size());
    gpu.synchronise();
    EXPECT_EQ(arena.peak(), plan.peak()) << "planned and used scratch";
    Values values;
    for (const auto& [name, o] : operands_) values[name] = decode(host[name], tensors[name].dtype());
    return last_gpu_ = values;
  }

  static std::vector<std::byte> encode(const std::vector<double>& values, DType type) {
    std::vector<std::byte> bytes(values.size() * size_of(type));
    for (size_t i = 0; i < values.size(); ++i) {
      const float single = static_cast<float>(values[i]);
      const bf16 half = to_bf16(single);
      const int32_t id = type == DType::i32 ? static_cast<int32_t>(values[i]) : 0;
      const void* from = type == DType::f32    ? static_cast<const void*>(&single)
                         : type == DType::bf16 ? static_cast<const void*>(&half)
                                               : static_cast<const void*>(&id);
      std::memcpy(bytes.data() + i * size_of(type), from, size_of(type));
    }
    return bytes;
  }
  static std::vector<double> decode(const std::vector<std::byte>& bytes, DType type) {
    std::vector<double> values(bytes.size() / size_of(type));
    for (size_t i = 0; i < values.size(); ++i) {
      const std::byte* at = bytes.data() + i * size_of(type);
      float single = 0;
      bf16 half;
      int32_t id = 0;
      if (type == DType::f32) std::memcpy(&single, at, 4);
      if (type == DType::bf16) std::memcpy(&half, at, 2);
      if (type == DType::i32) std::memcpy(&id, at, 4);
      values[i] =
          type == DType::i32 ? id : static_cast<double>(type == DType::bf16 ? to_float(half) : single);
    }
    return values;
  }

  // What the CPU left unwritten is NaN on both sides.
  static void compare(const std::string& name, const std::vector<double>& found,
                      const std::vector<double>& expected, double tolerance) {
    std::vector<double> a, b;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(found[i])) << name << "[" << i << "] was written: " << found[i];
        if (!std::isnan(found[i])) return;
      } else {
        a.push_back(found[i]);
        b.push_back(expected[i]);
      }
    }
    EXPECT_TRUE(close(a, b, tolerance)) << name;
  }

  Tolerance tolerance_;
  std::map<std::string, Tolerance> tolerances_;
  std::map<std::string, Operand> operands_;
  Values last_gpu_, last_cpu_;
  uint64_t next_seed_ = 1;
};

}  // namespace kata::test
