// The capacity suite: every measurement against plain loops on the same keys, and what the suite must find.
#include "eval/capacity.h"

#include <cmath>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/parallel.h"
#include "eval/capacity_certificates.h"
#include "eval/capacity_packing.h"
#include "eval/capacity_report.h"
#include "eval/capacity_theory.h"

namespace kata {
namespace {

const StopCheck go_on = [] { return false; };

std::vector<CapacityMap> maps() {
  return {{"identity", 1}, {"orthant", 1}, {"lorentz", 1}, {"psd", 1},
          {"psd", 2},      {"psd_sum", 1}, {"psd_sum", 2}};
}

double dot(const double* x, const double* y, int64_t n) {
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += x[j] * y[j];
  return sum;
}

// The score as MATH has it, from the keys.
double plain_score(const CapacityMap& map, const double* x, const double* y, int64_t d) {
  if (map.map == "identity") return dot(x, y, d);
  if (map.map == "orthant") {
    double sum = 0;
    for (int64_t j = 0; j < d; ++j) sum += (std::max(x[j], 0.0) + 1e-6) * (std::max(y[j], 0.0) + 1e-6);
    return sum;
  }
  if (map.map == "lorentz") {
    const int64_t n = d - 1;
    return dot(x, y, n) + std::sqrt(dot(x, x, n) * dot(y, y, n)) * (1 + x[n] * x[n]) * (1 + y[n] * y[n]);
  }
  const int64_t e = d / map.groups;
  double sum = 0;
  for (int64_t i = 0; i < map.groups; ++i)
    for (int64_t j = 0; j < map.groups; ++j)
      if (i == j || map.map == "psd_sum") sum += std::pow(dot(x + i * e, y + j * e, e), 2);
  return sum;
}

double plain_nu(const CapacityMap& map, const double* x, const double* y, int64_t d) {
  return plain_score(map, x, y, d) / std::sqrt(plain_score(map, x, x, d) * plain_score(map, y, y, d));
}

CapacityConfig tiny() {
  CapacityConfig config;
  config.suite = "capacity";
  config.maps = maps();
  config.widths = {4, 6};
  config.power = {20000, 64};
  config.welch = {8, 100};
  config.packing = {300, {0.1, 0.3}};
  config.wall = {200, 150, 2};
  config.supports.candidates = 200;
  config.certificates.draws = 10;
  return config;
}

// Threads for as long as it lives; so little work is faster with one.
class Threads {
 public:
  explicit Threads(int threads) : before_(thread_count()) { set_thread_count(threads); }
  ~Threads() { set_thread_count(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

CapacityResults run(const CapacityConfig& config, const std::function<bool()>& interrupted = go_on,
                    int threads = 1) {
  const Threads scope(threads);
  ::testing::internal::CaptureStderr();
  Monitor monitor(0, interrupted);
  CapacityResults results = run_capacity(config, false, monitor);
  ::testing::internal::GetCapturedStderr();
  return results;
}

// All that is measured, to the bit.
std::string numbers(const CapacityResults& results) {
  const auto json = to_json(results);
  return json.at("results").dump() + json.at("curves").dump();
}

TEST(Capacity, KnowsEveryMap) {
  for (const std::string& name : map_names()) {
    const KeyMap map = key_map({name, 1}, 8);
    EXPECT_GT(map.map.features(), 0) << name;
    EXPECT_GT(map.power, 0) << name;
  }
}

TEST(Capacity, KeysAreUnitAndDependOnSeedUseWidthAndSetAlone) {
  const Keys all = KeySource(3, KeyUse::wall, 5, 2).take(0, 300),
             late = KeySource(3, KeyUse::wall, 5, 2).take(250, 7);
  EXPECT_EQ(std::vector<double>(all.x.begin() + 250 * 5, all.x.begin() + 257 * 5), late.x);
  for (int64_t i = 0; i < all.count(); ++i) EXPECT_NEAR(dot(all.row(i), all.row(i), 5), 1, 1e-14);
  for (const KeySource& other : {KeySource(4, KeyUse::wall, 5, 2), KeySource(3, KeyUse::welch, 5, 2),
                                 KeySource(3, KeyUse::wall, 5, 1)})
    EXPECT_NE(other.take(250, 7).x, late.x);
  std::vector<int> sizes(6);
  const Keys sparse = KeySource(3, KeyUse::supports, 5, 0).take_sparse(0, 300);
  for (int64_t i = 0; i < sparse.count(); ++i) {
    int positive = 0;
    for (int64_t j = 0; j < 5; ++j) {
      EXPECT_GE(sparse.row(i)[j], 0);
      positive += sparse.row(i)[j] > 0;
    }
    ++sizes[positive];
    EXPECT_NEAR(dot(sparse.row(i), sparse.row(i), 5), 1, 1e-14);
  }
  EXPECT_EQ(sizes[0], 0);
  for (int size = 1; size <= 5; ++size) EXPECT_NEAR(sizes[size], 60, 30) << size;
}

TEST(Capacity, PowerIsThatOfPlainLoops) {
  const Threads scope(2);
  for (const CapacityMap& config : maps())
    for (const int64_t keys : {2, 3, 300}) {
      SCOPED_TRACE(map_label(config));
      constexpr int64_t d = 6, draws = 3;
      const Keys drawn = KeySource(5, KeyUse::power, d, keys).take(0, draws * keys);
      double noise = 0, signal = 0;
      for (int64_t i = 0; i < draws * keys; ++i)
        for (int64_t j = i / keys * keys; j < (i / keys + 1) * keys; ++j)
          (i == j ? signal : noise) += std::pow(plain_score(config, drawn.row(i), drawn.row(j), d), 2);
      const double power = interference_power(key_map(config, d), keys, draws, 5, go_on).value();
      EXPECT_NEAR(power / (noise / signal), 1, 1e-11);
    }
}

TEST(Capacity, ThresholdsLieWithinFivePercent) {
  const Threads scope(1);
  for (const CapacityMap& config : maps())
    for (const int64_t width : {4, 8}) {
      SCOPED_TRACE(fmt::format("{} width {}", map_label(config), width));
      const KeyMap map = key_map(config, width);
      const PowerCurve curve = power_curve(map, {60000, 4096}, 1, go_on).value();
      ASSERT_TRUE(curve.threshold);
      EXPECT_NEAR(*curve.threshold * map.power, 1, 0.05);
      for (size_t i = 1; i < curve.points.size(); ++i)
        EXPECT_GT(curve.points[i].keys, curve.points[i - 1].keys);
      EXPECT_GE(curve.points.back().power, 2);
    }
  // A curve that is cut off has no threshold.
  const PowerCurve cut = power_curve(key_map({"psd", 1}, 16), {100, 20}, 1, go_on).value();
  EXPECT_FALSE(cut.threshold);
  EXPECT_EQ(cut.points.back().keys, 20);
}

TEST(Capacity, SimplexAndBases) {
  const FeatureMap raw = key_map({"identity", 1}, 8).map, psd = key_map({"psd", 1}, 8).map;
  for (const int64_t d : {1, 2, 3, 8, 33}) {
    const Keys keys = simplex_keys(d);
    ASSERT_EQ(keys.count(), d + 1);
    for (int64_t i = 0; i <= d; ++i)
      for (int64_t j = 0; j <= d; ++j)
        EXPECT_NEAR(dot(keys.row(i), keys.row(j), d), i == j ? 1 : -1 / static_cast<double>(d), 1e-13);
  }
  EXPECT_NEAR(worst_score(raw, simplex_keys(8)), welch_bound(9, 8), 1e-13);
  EXPECT_NEAR(worst_score(psd, simplex_keys(8)), std::pow(welch_bound(9, 8), 2), 1e-13);
  EXPECT_EQ(worst_score(raw, basis_keys(8)), 0);
  const Keys both = basis_and_hadamard_keys(8);
  EXPECT_EQ(both.count(), 16);
  EXPECT_NEAR(worst_score(raw, both), 1 / std::sqrt(8.0), 1e-14);
  EXPECT_TRUE(basis_and_hadamard_keys(6).x.empty());
}

TEST(Capacity, WorstScoreIsThatOfPlainLoops) {
  for (const CapacityMap& config : maps()) {
    const Keys keys = KeySource(2, KeyUse::welch, 4, 0).take(0, 290);
    double worst = 0;
    for (int64_t i = 0; i < keys.count(); ++i)
      for (int64_t j = 0; j < i; ++j)
        worst = std::max(worst, std::abs(plain_nu(config, keys.row(i), keys.row(j), 4)));
    EXPECT_NEAR(worst_score(key_map(config, 4).map, keys), worst, 1e-12) << map_label(config);
  }
}

TEST(Capacity, GreedyPackingIsThatOfPlainLoops) {
  const Threads scope(2);
  for (const CapacityMap& config : maps()) {
    constexpr int64_t d = 8, candidates = 700;
    const double limit = config.map == "identity" ? 0.9 : 0.81;
    const KeySource source(2, KeyUse::packing, d, 0);
    const Keys offered = source.take(0, candidates);
    std::vector<int64_t> kept;
    for (int64_t i = 0; i < candidates; ++i)
      if (std::all_of(kept.begin(), kept.end(), [&](int64_t j) {
            return std::abs(plain_nu(config, offered.row(i), offered.row(j), d)) <= limit;
          }))
        kept.push_back(i);
    EXPECT_EQ(greedy_count(key_map(config, d), limit, false, source, candidates, go_on),
              static_cast<int64_t>(kept.size()))
        << map_label(config);
    if (config.map == "psd" && config.groups == 1) {
      EXPECT_GT(kept.size(), 300u) << "more than a tile and an offered block";
    }
  }
}

TEST(Capacity, GreedyLimitIsOpenOrClosed) {
  const FeatureMap raw = key_map({"identity", 1}, 2).map;
  const Keys keys{2, {1, 0, 0.6, 0.8}};
  for (const bool strict : {false, true}) {
    GreedyPacking packing(raw, 0.6, strict);
    packing.offer(keys);
    EXPECT_EQ(packing.kept().count(), strict ? 1 : 2);
  }
}

// Each next key is the best of its candidates.
TEST(Capacity, GreedySpreadTakesTheBest) {
  const KeySource source(1, KeyUse::greedy, 3, 0);
  const Keys kept = greedy_spread(4, 5, source);
  ASSERT_EQ(kept.count(), 4);
  for (int64_t i = 1; i < 4; ++i) {
    const Keys drawn = source.take(1 + (i - 1) * 5, 5);
    const auto worst = [&](const double* key) {
      double most = 0;
      for (int64_t j = 0; j < i; ++j) most = std::max(most, std::abs(dot(key, kept.row(j), 3)));
      return most;
    };
    for (int64_t c = 0; c < 5; ++c) EXPECT_LE(worst(kept.row(i)), worst(drawn.row(c)));
  }
}

TEST(Capacity, DescentFindsTheBestSets) {
  const FeatureMap raw = key_map({"identity", 1}, 4).map, lorentz = key_map({"lorentz", 1}, 4).map;
  const Keys start = KeySource(1, KeyUse::descent, 4, 0).take(0, 5);
  const Spread five = spread_keys(raw, start, 600, go_on);
  EXPECT_NEAR(five.worst, 0.25, 2e-3);
  EXPECT_NEAR(five.worst, worst_score(raw, five.keys), 1e-14);
  const Keys four{4, {start.x.begin(), start.x.begin() + 16}};
  EXPECT_NEAR(spread_keys(lorentz, four, 600, go_on).worst, 1.0 / 3, 2e-3);  // (1 - 1/3) / 2
  EXPECT_NEAR(spread_keys(lorentz, start, 600, go_on).worst, 0.5, 2e-3);
  EXPECT_EQ(spread_keys(raw, start, 600, [] { return true; }).keys.x, start.x);
  EXPECT_NEAR(spread_keys(raw, start, 0, go_on).worst, worst_score(raw, start), 1e-14);
}

// The wall's reason: h that are not obtuse score 1/2 or more, whatever the tau.
TEST(Capacity, LorentzScoresOfAcuteKeysAreAtLeastAHalf) {
  const Keys keys = KeySource(1, KeyUse::wall, 5, 7).take(0, 60);
  double least_acute = 1, least = 1;
  for (int64_t i = 0; i < keys.count(); ++i)
    for (int64_t j = 0; j < i; ++j)
      for (const double a : {0.0, 0.1, 1.0, 30.0})
        for (const double b : {0.0, -0.4, 2.0}) {
          Keys two{5, {}};
          two.append(keys.row(i)), two.append(keys.row(j));
          two.row(0)[4] = a, two.row(1)[4] = b;
          const double nu = plain_nu({"lorentz", 1}, two.row(0), two.row(1), 5);
          EXPECT_NEAR(worst_score(key_map({"lorentz", 1}, 5).map, two), nu, 1e-12);
          double& lowest = dot(two.row(0), two.row(1), 4) >= 0 ? least_acute : least;
          lowest = std::min(lowest, nu);
        }
  EXPECT_GE(least_acute, 0.5);
  EXPECT_LT(least_acute, 0.51);
  EXPECT_LT(least, 0.1);
}

TEST(Capacity, RandomUnitaryKeepsProducts) {
  for (const int64_t field : {1, 2, 4}) {
    const int64_t n = 3, row = n * field;
    const std::vector<double> u = random_unitary(n, field, Philox(1, 2));
    // Rows are orthonormal over the field, so also over the real numbers.
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        EXPECT_NEAR(dot(&u[i * row], &u[j * row], row), i == j, 1e-14) << "field " << field;
  }
  // U(1): a turn of the plane; a product with a complex number keeps its angle.
  const std::vector<double> one = random_unitary(1, 2, Philox(1, 2));
  EXPECT_NEAR(one[0] * one[0] + one[1] * one[1], 1, 1e-14);
}

TEST(Capacity, CertificatesSeeWhatDoesNotHold) {
  for (const CapacityMap& config : maps()) {
    SCOPED_TRACE(map_label(config));
    const KeyMap map = key_map(config, 8);
    EXPECT_LT(isometry_error(map, 20, 1), 1e-13);
    EXPECT_EQ(added_parameters(map), 0);
    if (map.cone) {
      EXPECT_GE(smallest_score(map, 20, 1), 0);
    }
    if (map.squares) {
      EXPECT_LT(scale_error(map, 20, 1), 1e-12);
    }
  }
  EXPECT_LT(smallest_score(key_map({"identity", 1}, 8), 20, 1), -0.1);
  EXPECT_GT(scale_error(key_map({"orthant", 1}, 8), 20, 1), 1e-6);
  EXPECT_GT(scale_error(key_map({"lorentz", 1}, 8), 20, 1), 1e-3);
  KeyMap wrong = key_map({"psd_sum", 2}, 8);
  wrong.isometry = Isometry::per_group;
  EXPECT_GT(isometry_error(wrong, 20, 1), 1e-2);
  for (const char* name : {"orthant", "lorentz"}) {
    wrong = key_map({name, 1}, 8);
    wrong.isometry = Isometry::unitary;
    EXPECT_GT(isometry_error(wrong, 20, 1), 1e-2) << name;
  }
}

TEST(Capacity, RowsHold) {
  CapacityRow row;
  const auto holds = [&](Relation relation, double measured, double bound, double slack) {
    row.relation = relation, row.measured = measured, row.bound = bound, row.slack = slack;
    return row.holds();
  };
  EXPECT_TRUE(holds(Relation::equals, 104, 100, 0.05));
  EXPECT_FALSE(holds(Relation::equals, 106, 100, 0.05));
  EXPECT_FALSE(holds(Relation::equals, 94, 100, 0.05));
  EXPECT_TRUE(holds(Relation::equals, 1e-12, 0, 1e-10));
  EXPECT_FALSE(holds(Relation::equals, 1e-9, 0, 1e-10));
  EXPECT_TRUE(holds(Relation::at_most, 8, 8, 0));
  EXPECT_FALSE(holds(Relation::at_most, 9, 8, 0));
  EXPECT_TRUE(holds(Relation::at_least, 0.5, 0.5, 1e-10));
  EXPECT_FALSE(holds(Relation::at_least, 0.499, 0.5, 1e-10));
  for (const Relation relation : {Relation::equals, Relation::at_least, Relation::at_most})
    EXPECT_FALSE(holds(relation, NAN, 1, 0.1));
}

TEST(Capacity, TheSuiteFindsWhatIsKnown) {
  const CapacityResults results = run(tiny());
  EXPECT_TRUE(results.complete());
  std::map<std::string, int> parts;
  for (const CapacityRow& row : results.rows) {
    ++parts[row.part];
    EXPECT_TRUE(row.holds()) << row.part << " " << row.map << " " << row.width << " " << row.what << ": "
                             << row.measured << " against " << row.bound;
    if (row.part == "wall" && row.map == "lorentz" && row.what.starts_with("kept")) {
      EXPECT_LE(row.measured, static_cast<double>(row.width));
    }
    if (row.part == "wall" && row.map == "psd M 1") {
      EXPECT_GT(row.measured, static_cast<double>(row.width)) << "psd holds more than lorentz";
    }
    if (row.part == "power") {
      EXPECT_TRUE(row.has_bound());
    }
  }
  EXPECT_EQ(parts["power"], 14);
  EXPECT_EQ(parts["welch"], 2 * 10 + 1);  // 4 = a power of two has the Hadamard rows
  EXPECT_EQ(parts["packing"], 28);
  EXPECT_EQ(parts["wall"], 14 + 2 * 3);
  EXPECT_EQ(parts["supports"], 4);
  EXPECT_EQ(parts["certificates"], 7 * 3 + 4);
  EXPECT_EQ(results.curves.size(), 14u);
}

TEST(Capacity, SameBitsForAnyThreadCountAndOtherOnesForAnotherSeed) {
  CapacityConfig config = tiny();
  config.widths = {8};
  config.packing.candidates = 600;
  const std::string one = numbers(run(config));
  EXPECT_EQ(numbers(run(config, go_on, 3)), one);
  config.seed = 2;
  EXPECT_NE(numbers(run(config)), one);
}

TEST(Capacity, EveryKeyChangesTheResults) {
  const auto small = [] {
    CapacityConfig config = tiny();
    config.maps = {{"orthant", 1}, {"lorentz", 1}, {"psd", 1}};
    config.widths = {6};
    config.power.pairs = 2000;
    config.welch.steps = config.wall.steps = 30;
    config.wall.restarts = 1;
    return config;
  };
  const std::string base = numbers(run(small()));
  const auto expect_change = [&](const char* key, const std::function<void(CapacityConfig&)>& set) {
    CapacityConfig config = small();
    set(config);
    EXPECT_NE(numbers(run(config)), base) << key;
  };
  expect_change("maps", [](CapacityConfig& c) { c.maps.pop_back(); });
  expect_change("widths", [](CapacityConfig& c) { c.widths = {4}; });
  expect_change("power.pairs", [](CapacityConfig& c) { c.power.pairs += 1000; });
  expect_change("power.max_keys", [](CapacityConfig& c) { c.power.max_keys = 5; });
  expect_change("welch.candidates", [](CapacityConfig& c) { ++c.welch.candidates; });
  expect_change("welch.steps", [](CapacityConfig& c) { ++c.welch.steps; });
  expect_change("packing.candidates", [](CapacityConfig& c) { ++c.packing.candidates; });
  expect_change("packing.eps", [](CapacityConfig& c) { c.packing.eps = {0.2}; });
  expect_change("wall.candidates", [](CapacityConfig& c) { ++c.wall.candidates; });
  expect_change("wall.steps", [](CapacityConfig& c) { ++c.wall.steps; });
  expect_change("wall.restarts", [](CapacityConfig& c) { c.wall.restarts = 5; });
  expect_change("supports.candidates", [](CapacityConfig& c) { ++c.supports.candidates; });
  expect_change("certificates.draws", [](CapacityConfig& c) { ++c.certificates.draws; });
}

TEST(Capacity, StoppedItKeepsWhatIsFinished) {
  CapacityConfig config = tiny();
  config.widths = {4};
  int asked = 0;
  const CapacityResults whole = run(config, [&] { return ++asked < 0; });
  for (const int after : {0, 1, asked / 4, asked / 2, asked - 1}) {
    int calls = 0;
    const CapacityResults cut = run(config, [&] { return ++calls > after; });
    EXPECT_FALSE(cut.complete()) << after;
    EXPECT_LT(cut.rows.size(), whole.rows.size());
    const auto all = to_json(whole).at("results"), some = to_json(cut).at("results");
    for (size_t i = 0; i < some.size(); ++i) EXPECT_EQ(some[i], all[i]);
    EXPECT_NE(report_html(cut).find("not complete"), std::string::npos);
    EXPECT_EQ(capacity_tables(cut).empty(), cut.rows.empty());
  }
}

TEST(Capacity, Report) {
  CapacityResults results = run(tiny());
  const std::string tables = capacity_tables(results), html = report_html(results);
  for (const char* text : {"\n# Interference of random keys\n", "\npsd M 2 ", "simplex", ">= ", "<= ", "yes"})
    EXPECT_NE(tables.find(text), std::string::npos) << text;
  for (const char* text :
       {"<svg", "stroke-dasharray", "Interference power, p = 6", "Keys kept of random keys"})
    EXPECT_NE(html.find(text), std::string::npos) << text;
  EXPECT_EQ(html.find("nan"), std::string::npos);
  EXPECT_EQ(html.find("not complete"), std::string::npos);
  EXPECT_EQ(html.find("class=\"no\""), std::string::npos);
  const auto first = to_json(results).at("results").at(0);
  EXPECT_EQ(first.at("part"), "power");
  EXPECT_EQ(first.at("map"), "identity");
  EXPECT_EQ(first.at("width"), 4);
  EXPECT_EQ(first.at("bound"), 4);
  EXPECT_DOUBLE_EQ(first.at("ratio"), first.at("measured").get<double>() / 4);
  results.rows[0].measured = NAN;
  EXPECT_NE(capacity_tables(results).find(" NO\n"), std::string::npos);
  EXPECT_NE(report_html(results).find("class=\"no\""), std::string::npos);
  EXPECT_TRUE(to_json(results).at("results").at(0).at("measured").is_null());
}

}  // namespace
}  // namespace kata
