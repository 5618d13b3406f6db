#include "eval/capacity.h"

#include <algorithm>
#include <cmath>

#include "base/version.h"
#include "eval/capacity_certificates.h"
#include "eval/capacity_packing.h"
#include "eval/capacity_theory.h"
#include "eval/results.h"

namespace kata {

namespace {

constexpr double rounding = 1e-10;

using Rows = std::vector<CapacityRow>;

// One piece of work; `run` adds its rows, or returns false where it was stopped before its end.
struct Unit {
  std::string name;
  std::function<bool(CapacityResults&)> run;
};

class Plan {
 public:
  Plan(const CapacityConfig& config, const StopCheck& stop) : config_(config), stop_(stop) {
    for (const double width : config.widths) widths_.push_back(static_cast<int64_t>(width));
    for_each_map([&](const KeyMap& map) { power(map); });
    for (const int64_t width : widths_) welch(width);
    for_each_map([&](const KeyMap& map) { packing(map); });
    for_each_map([&](const KeyMap& map) { wall(map); });
    for_each_map([&](const KeyMap& map) { supports(map); });
    for (const CapacityMap& map : config.maps) certificates(map);
  }
  const std::vector<Unit>& units() const { return units_; }

 private:
  template <class Body>
  void for_each_map(Body&& body) {
    for (const CapacityMap& map : config_.maps)
      for (const int64_t width : widths_) body(key_map(map, width));
  }
  void add(const char* part, const KeyMap& map, std::function<bool(CapacityResults&)> run) {
    units_.push_back({fmt::format("{}, {}, width {}", part, map.label, map.width()), std::move(run)});
  }
  static CapacityRow row(const char* part, const KeyMap& map, std::string what) {
    CapacityRow row;
    row.part = part;
    row.map = map.label;
    row.width = map.width();
    row.features = map.map.features();
    row.what = std::move(what);
    return row;
  }

  void power(const KeyMap& map);
  void welch(int64_t width);
  void packing(const KeyMap& map);
  void wall(const KeyMap& map);
  bool lorentz_wall(const KeyMap& map, Rows& rows) const;
  void supports(const KeyMap& map);
  void certificates(const CapacityMap& config);

  const CapacityConfig& config_;
  const StopCheck& stop_;
  std::vector<int64_t> widths_;
  std::vector<Unit> units_;
};

void Plan::power(const KeyMap& map) {
  add("power", map, [this, map](CapacityResults& results) {
    constexpr double within = 0.05;
    const std::optional<PowerCurve> curve = power_curve(map, config_.power, config_.seed, stop_);
    if (!curve) return false;
    CapacityRow threshold =
        row("power", map, curve->threshold ? "T - 1 at power 1" : "largest T - 1, power still below 1");
    threshold.measured = curve->threshold.value_or(static_cast<double>(curve->points.back().keys - 1));
    // A curve that ends below 1 says nothing about where it would cross.
    if (curve->threshold) {
      threshold.relation = Relation::equals;
      threshold.bound = 1 / map.power;
      threshold.slack = within;
    }
    results.rows.push_back(threshold);
    results.curves.push_back({map.label, map.width(), map.power, *curve});
    return true;
  });
}

// Coherence: |nu| of raw scores. The same keys under psd have its square.
void Plan::welch(int64_t width) {
  const KeyMap raw = key_map({"identity", 1}, width);
  const auto measure = [this, raw](Rows& rows, const char* what, const Keys& keys) {
    if (keys.count() < 2) return;
    CapacityRow found = row("welch", raw, what);
    found.keys = keys.count();
    found.measured = worst_score(raw.map, keys);
    found.relation = keys.count() == raw.width() + 1 && std::string(what) == "simplex" ? Relation::equals
                                                                                       : Relation::at_least;
    found.bound = welch_bound(found.keys, raw.width());
    found.slack = rounding;
    rows.push_back(found);
  };
  add("welch", raw, [this, raw, width, measure](CapacityResults& results) {
    Rows rows;
    for (const int64_t keys : {width + 1, 2 * width, 4 * width}) {
      const KeySource random(config_.seed, KeyUse::welch, width, keys),
          offered(config_.seed, KeyUse::greedy, width, keys);
      const Keys start = random.take(0, keys);
      measure(rows, "random", start);
      measure(rows, "greedy", greedy_spread(keys, config_.welch.candidates, offered));
      if (stop_()) return false;
      measure(rows, "descent", spread_keys(raw.map, start, config_.welch.steps, stop_).keys);
      if (keys == width + 1) measure(rows, "simplex", simplex_keys(width));
      if (keys == 2 * width) measure(rows, "basis and Hadamard", basis_and_hadamard_keys(width));
      if (stop_()) return false;
    }
    results.rows.insert(results.rows.end(), rows.begin(), rows.end());
    return true;
  });
}

void Plan::packing(const KeyMap& map) {
  add("packing", map, [this, map](CapacityResults& results) {
    // Greedy packing meets the claim in expectation with as many candidates as keys are claimed, twice over;
    // this leaves room for chance.
    constexpr double enough = 4;
    Rows rows;
    for (const double eps : config_.packing.eps) {
      const KeySource source(config_.seed, KeyUse::packing, map.width(), 0);
      const std::optional<int64_t> kept =
          greedy_count(map, eps, false, source, config_.packing.candidates, stop_);
      if (!kept) return false;
      CapacityRow found = row("packing", map, fmt::format("kept at nu <= {:g}", eps));
      found.keys = config_.packing.candidates;
      found.measured = static_cast<double>(*kept);
      // |<u, v>| <= eps is <u, v>^2 <= eps^2.
      const double squared = map.cone ? eps : eps * eps;
      const double bound = packing_bound(map.field(), map.width(), squared);
      const bool claimed = !map.cone || (map.squares && map.config.groups == 1);
      if (claimed && enough * bound <= static_cast<double>(config_.packing.candidates)) {
        found.relation = Relation::at_least;
        found.bound = bound;
      }
      rows.push_back(found);
    }
    results.rows.insert(results.rows.end(), rows.begin(), rows.end());
    return true;
  });
}

void Plan::wall(const KeyMap& map) {
  add("wall", map, [this, map](CapacityResults& results) {
    Rows rows;
    const KeySource source(config_.seed, KeyUse::wall, map.width(), 0);
    const std::optional<int64_t> kept = greedy_count(map, 0.5, true, source, config_.wall.candidates, stop_);
    if (!kept) return false;
    CapacityRow found = row("wall", map, "kept of random keys");
    found.keys = config_.wall.candidates;
    found.measured = static_cast<double>(*kept);
    const bool lorentz = map.isometry == Isometry::space;
    if (lorentz) found.relation = Relation::at_most, found.bound = static_cast<double>(map.width());
    rows.push_back(found);
    if (lorentz && !lorentz_wall(map, rows)) return false;
    results.rows.insert(results.rows.end(), rows.begin(), rows.end());
    return true;
  });
}

// By construction and by descent: p + 1 = d keys fit below 1/2, and d + 1 do not.
bool Plan::lorentz_wall(const KeyMap& map, Rows& rows) const {
  const int64_t d = map.width();
  const Keys simplex = simplex_keys(d - 1);
  Keys corners{d, {}};
  for (int64_t i = 0; i < d; ++i) {
    corners.x.insert(corners.x.end(), simplex.row(i), simplex.row(i) + d - 1);
    corners.x.push_back(0);  // tau
  }
  const KeySource source(config_.seed, KeyUse::wall, d, 1);
  GreedyPacking packing(map.map, 0.5, true);
  packing.offer(corners);
  for (int64_t i = 0; i < config_.wall.candidates; i += key_tile) {
    if (stop_()) return false;
    packing.offer(source.take(i, std::min(key_tile, config_.wall.candidates - i)));
  }
  CapacityRow built = row("wall", map, "kept of a simplex, tau 0, then random");
  built.keys = d + config_.wall.candidates;
  built.measured = static_cast<double>(packing.kept().count());
  built.relation = Relation::equals;
  built.bound = static_cast<double>(d);
  rows.push_back(built);

  for (const int64_t keys : {d, d + 1}) {
    double least = INFINITY;
    for (int64_t start = 0; start < config_.wall.restarts; ++start) {
      const KeySource random(config_.seed, KeyUse::descent, d, start);
      least = std::min(least, spread_keys(map.map, random.take(0, keys), config_.wall.steps, stop_).worst);
      if (stop_()) return false;
    }
    CapacityRow descent = row("wall", map, "largest nu after descent");
    descent.keys = keys;
    descent.measured = least;
    // The cosines of d vectors are at least -1/(d - 1) on average, and while a cosine is negative nu grows
    // with both tau: no d keys are better than the simplex.
    descent.relation = Relation::at_least;
    descent.bound = keys == d ? 0.5 * (1 - 1 / static_cast<double>(d - 1)) : 0.5;
    descent.slack = rounding;
    rows.push_back(descent);
  }
  return true;
}

void Plan::supports(const KeyMap& map) {
  if (map.isometry != Isometry::permutation) return;
  add("supports", map, [this, map](CapacityResults& results) {
    Rows rows;
    for (const bool basis : {true, false}) {
      const KeySource source(config_.seed, KeyUse::supports, map.width(), basis);
      GreedyPacking packing(map.map, zero_score(map.width()), false);
      if (basis) packing.offer(basis_keys(map.width()));
      for (int64_t i = 0; i < config_.supports.candidates; i += key_tile) {
        if (stop_()) return false;
        packing.offer(source.take_sparse(i, std::min(key_tile, config_.supports.candidates - i)));
      }
      CapacityRow found =
          row("supports", map, basis ? "kept of the basis, then sparse" : "kept of sparse random keys");
      found.keys = config_.supports.candidates + (basis ? map.width() : 0);
      found.measured = static_cast<double>(packing.kept().count());
      found.relation = basis ? Relation::equals : Relation::at_most;
      found.bound = static_cast<double>(map.width());
      rows.push_back(found);
    }
    results.rows.insert(results.rows.end(), rows.begin(), rows.end());
    return true;
  });
}

// The worst over the widths.
void Plan::certificates(const CapacityMap& config) {
  const KeyMap widest = key_map(config, *std::max_element(widths_.begin(), widths_.end()));
  add("certificates", widest, [this, config, widest](CapacityResults& results) {
    const int64_t draws = config_.certificates.draws;
    double moved = 0, least = INFINITY, scaled = 0, added = 0;
    for (const int64_t width : widths_) {
      if (stop_()) return false;
      const KeyMap map = key_map(config, width);
      moved = std::max(moved, isometry_error(map, draws, config_.seed));
      least = std::min(least, smallest_score(map, draws, config_.seed));
      if (map.squares) scaled = std::max(scaled, scale_error(map, draws, config_.seed));
      added = std::max(added, std::abs(static_cast<double>(added_parameters(map))));
    }
    const auto certify = [&](std::string what, double measured, Relation relation) {
      CapacityRow found = row("certificates", widest, std::move(what));
      found.measured = measured;
      found.relation = relation;
      found.slack = rounding;
      results.rows.push_back(found);
    };
    certify(fmt::format("change of nu under {}", isometry_name(widest.isometry)), moved, Relation::equals);
    certify("least nu of two keys", least, widest.cone ? Relation::at_least : Relation::none);
    if (widest.squares) certify("change of weights, q to lambda q", scaled, Relation::equals);
    certify("parameters added", added, Relation::equals);
    return true;
  });
}

}  // namespace

bool CapacityRow::holds() const {
  const double room = bound != 0 ? slack * std::abs(bound) : slack;
  switch (relation) {
    case Relation::none:
      return true;
    case Relation::equals:
      return std::abs(measured - bound) <= room;
    case Relation::at_least:
      return measured >= bound - room;
    case Relation::at_most:
      return measured <= bound + room;
  }
  return false;
}

// Two unit keys with disjoint supports: <x + e, y + e> = e (sum x + sum y) + d e^2, and sum x + sum y is at
// most sqrt(2 d); features are at least as long as their keys. Rounding is far below the second sqrt(2).
double zero_score(int64_t width) {
  constexpr double e = 1e-6;
  const auto d = static_cast<double>(width);
  return 2 * e * std::sqrt(d) + d * e * e;
}

CapacityResults run_capacity(const CapacityConfig& config, bool quick, Monitor& monitor) {
  CapacityResults results;
  results.config = config;
  results.quick = quick;
  results.commit = commit();
  results.date = utc_now();
  const StopCheck stop = [&] { return monitor.stop() != Stop::none; };
  const Plan plan(config, stop);
  results.planned = static_cast<int64_t>(plan.units().size());
  for (const Unit& unit : plan.units()) {
    if (stop()) break;
    monitor.note(fmt::format("{:>3} of {}: {}", results.done + 1, results.planned, unit.name));
    if (!unit.run(results)) break;
    ++results.done;
  }
  return results;
}

}  // namespace kata
