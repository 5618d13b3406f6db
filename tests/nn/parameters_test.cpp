// How parameters are laid out and drawn.
#include "nn/parameters.h"

#include <algorithm>
#include <functional>

#include "base/parallel.h"
#include "support/compare.h"

namespace kata {
namespace {

constexpr int64_t count = 100'000;

// `count` draws of one parameter.
std::vector<double> draws(const Init& init, uint64_t seed = 3, const std::string& name = "a",
                          DType dtype = DType::f64) {
  Parameters parameters(dtype);
  const Parameter& p = parameters.add(name, {count}, init, false);
  std::vector<double> memory(count);
  parameters.bind(Tensor(memory.data(), dtype, {count}), {});
  parameters.initialise(seed);
  if (dtype == DType::f64) return memory;
  return {p.value.as<float>(), p.value.as<float>() + count};
}

// The largest distance between the values' distribution and the one given: about 0.004 for `count` draws that
// have it, and above 0.006 once in 500 such sets.
double distance(std::vector<double> values, const std::function<double(double)>& distribution) {
  std::sort(values.begin(), values.end());
  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double at = distribution(values[i]), n = static_cast<double>(values.size());
    worst = std::max(
        {worst, std::abs(at - static_cast<double>(i) / n), std::abs(at - static_cast<double>(i + 1) / n)});
  }
  return worst;
}
std::function<double(double)> uniform(double low, double high) {
  return [=](double x) { return std::clamp((x - low) / (high - low), 0.0, 1.0); };
}

std::vector<double> mapped(std::vector<double> values, double (*f)(double)) {
  std::transform(values.begin(), values.end(), values.begin(), f);
  return values;
}
double softplus(double x) {
  return std::log1p(std::exp(x));
}

void expect_inside(const std::vector<double>& values, double low, double high) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  EXPECT_GE(*least, low);
  EXPECT_LE(*most, high);
  for (const double x : values) ASSERT_TRUE(std::isfinite(x));
}

TEST(ParameterInit, LogOfUniform) {
  for (const double low : {0.0, 1.0}) {
    const auto x = draws(Init::log_of_uniform(low, 16));
    const auto rates = mapped(x, std::exp);
    expect_inside(rates, low * (1 - 1e-12), 16 * (1 + 1e-12));
    EXPECT_GT(*std::min_element(rates.begin(), rates.end()), 0);
    expect_inside(x, -40, 3);  // finite at the lower end too
    EXPECT_LT(distance(rates, uniform(low, 16)), 0.006);
  }
}

TEST(ParameterInit, InverseSoftplus) {
  const auto steps = mapped(draws(Init::inverse_softplus(1e-3, 1e-1)), softplus);
  expect_inside(steps, 1e-3 * (1 - 1e-9), 1e-1 * (1 + 1e-9));
  EXPECT_LT(distance(mapped(steps, std::log), uniform(std::log(1e-3), std::log(1e-1))), 0.006);
}

TEST(ParameterInit, Uniform) {
  const auto x = draws(Init::uniform(0.5));
  expect_inside(x, -0.5, 0.5);
  EXPECT_LT(distance(x, uniform(-0.5, 0.5)), 0.006);
}

TEST(ParameterInit, Normal) {
  const auto x = draws(Init::normal(0.02));
  EXPECT_LT(distance(x, [](double at) { return 0.5 * std::erfc(-at / 0.02 / std::sqrt(2.0)); }), 0.006);
}

TEST(ParameterInit, Constant) {
  EXPECT_EQ(draws(Init::constant(1.25)), std::vector<double>(count, 1.25));
}

const std::vector<Init> kinds = {Init::normal(0.02), Init::uniform(0.5), Init::log_of_uniform(0, 16),
                                 Init::inverse_softplus(1e-3, 1e-1)};

TEST(ParameterInit, IsAFunctionOfSeedNameAndIndex) {
  for (const Init& init : kinds) {
    const auto x = draws(init);
    EXPECT_EQ(x, draws(init));
    EXPECT_NE(x, draws(init, 4));
    EXPECT_NE(x, draws(init, 3, "b"));
    const int before = thread_count();
    set_thread_count(2);
    const auto threaded = draws(init);
    set_thread_count(before);
    EXPECT_EQ(x, threaded);
    const auto rounded = test::cast<double>(test::cast<float>(x));
    EXPECT_EQ(draws(init, 3, "a", DType::f32), rounded);
  }
}

// Other parameters before it change nothing.
TEST(ParameterInit, DoesNotDependOnTheModelAroundIt) {
  Parameters parameters(DType::f64);
  parameters.add("first", {7, 3}, Init::normal(1), true);
  const Parameter& p = parameters.add("a", {count}, kinds[2], false);
  std::vector<double> memory(count + 21);
  parameters.bind(Tensor(memory.data(), DType::f64, {count + 21}), {});
  parameters.initialise(3);
  EXPECT_EQ(std::vector<double>(p.value.as<double>(), p.value.as<double>() + count), draws(kinds[2]));
}

TEST(Parameters, DecayedOnesComeFirst) {
  Parameters parameters(DType::f32);
  parameters.add("norm", {3}, Init::constant(1), false);
  parameters.add("weight", {2, 4}, Init::normal(1), true);
  parameters.add("bias", {5}, Init::constant(2), false);
  parameters.add("embedding", {6}, Init::normal(1), true);
  EXPECT_EQ(parameters.count(), 22);
  EXPECT_EQ(parameters.decayed_count(), 14);
  std::vector<float> values(22), gradients(22);
  parameters.bind(Tensor(values.data(), DType::f32, {22}), Tensor(gradients.data(), DType::f32, {22}));
  const std::vector<std::pair<std::string, int64_t>> expected = {
      {"norm", 14}, {"weight", 0}, {"bias", 17}, {"embedding", 8}};
  const auto named = parameters.named(parameters.gradients());
  ASSERT_EQ(named.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto& [name, offset] = expected[i];
    const Parameter& p = parameters.find(name);
    EXPECT_EQ(p.offset, offset) << name;
    EXPECT_EQ(p.value.as<float>(), values.data() + offset) << name;
    EXPECT_EQ(p.gradient.as<float>(), gradients.data() + offset) << name;
    EXPECT_EQ(named[i].first, name);
    EXPECT_EQ(named[i].second.as<float>(), gradients.data() + offset) << name;
    EXPECT_EQ(named[i].second.shape().str(), p.shape.str()) << name;
  }
}

TEST(Parameters, NamesAreUnique) {
  Parameters parameters(DType::f32);
  parameters.add("a", {3}, Init::constant(1), false);
  EXPECT_THROW(parameters.add("a", {3}, Init::constant(1), false), std::logic_error);
  EXPECT_THROW(parameters.find("b"), std::logic_error);
}

}  // namespace
}  // namespace kata
