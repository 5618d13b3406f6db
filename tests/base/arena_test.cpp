#include "base/arena.h"

#include <cstdint>
#include <gtest/gtest.h>

namespace kata {
namespace {

// What a step does: a scope inside a scope.
void step(Arena& arena) {
  arena.take("weights", DType::f32, {10, 10});
  Arena::Scope outer(arena);
  arena.take("activations", DType::f64, {1000});
  {
    Arena::Scope inner(arena);
    arena.take("scratch", DType::u8, {3});
  }
  arena.take("logits", DType::f32, {});
}

TEST(Arena, ThePlanIsWhatIsUsed) {
  Arena plan;
  step(plan);
  EXPECT_TRUE(plan.planning());
  EXPECT_EQ(plan.peak(), 512u + 8192 + 256);
  EXPECT_EQ(plan.used(), 512u);
  Arena arena(plan.peak());
  step(arena);
  EXPECT_FALSE(arena.planning());
  EXPECT_EQ(arena.peak(), plan.peak());
  EXPECT_EQ(arena.used(), plan.used());
  EXPECT_EQ(arena.capacity(), plan.peak());
}

TEST(Arena, PlanningGivesNullAndTheRealOneAlignedDistinctMemory) {
  Arena plan;
  EXPECT_EQ(plan.take("x", DType::f32, {8}).data(), nullptr);
  Arena arena(1024);
  const Tensor a = arena.take("a", DType::u8, {3}), b = arena.take("b", DType::u8, {3});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % Arena::alignment, 0u);
  EXPECT_EQ(static_cast<char*>(b.data()) - static_cast<char*>(a.data()), 256);
}

TEST(Arena, RunningOutPrintsWhatIsLiveLargestFirst) {
  Arena arena(1024);
  arena.take("small", DType::u8, {64});
  arena.take("large", DType::f32, {128});
  {
    Arena::Scope scope(arena);
    arena.take("released", DType::u8, {64});
  }
  try {
    arena.take("too much", DType::f64, {64});
    FAIL() << "no error";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), ExitCode::device);
    EXPECT_TRUE(text.starts_with("out of memory: too much needs 512 B and 768 B of 1.00 KiB are in use:\n"))
        << text;
    EXPECT_LT(text.find("large"), text.find("small"));
    EXPECT_EQ(text.find("released"), std::string::npos);
  }
}

TEST(Arena, TheTableOfAPlanIsOfItsPeak) {
  Arena plan;
  step(plan);
  EXPECT_NE(plan.table().find("activations"), std::string::npos);
  EXPECT_NE(plan.table().find("scratch"), std::string::npos);  // the peak is reached while it lives
  EXPECT_LT(plan.table().find("activations"), plan.table().find("weights"));
}

TEST(Arena, ABlockThatTheSystemLacksIsAnErrorOfTheDevice) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer ends the process where the system returns null";
#endif
  try {
    Arena arena(size_t{1} << 62);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::device);
    EXPECT_NE(std::string(error.what()).find("TiB"), std::string::npos);
  }
}

TEST(Arena, BytesAreReadable) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1280), "1.25 KiB");
  EXPECT_EQ(human_bytes(size_t{5} << 30), "5.00 GiB");
  EXPECT_EQ(human_bytes(size_t{1} << 52), "4096.00 TiB");
}

}  // namespace
}  // namespace kata
