// The capacity suite (MATH: capacity): how many keys each map tells apart, measured beside its bounds. No
// model is trained; the features are the program's own (ops/feature_map.h).
//
// Why at most p + 1 keys fit below the Lorentz wall, p = d - 1: with a = 1 + tau^2 >= 1 the normalised score
// is nu = (cos(h, h') + a a') / sqrt((1 + a^2) (1 + a'^2)). If cos(h, h') >= 0, then nu >= a / sqrt(1 + a^2)
// * a' / sqrt(1 + a'^2) >= 1/2, since each factor is at least 1/sqrt(2). So nu < 1/2 forces cos(h, h') < 0,
// whatever the tau are, and at most p + 1 vectors of R^p are mutually obtuse (Rankin). A simplex of h with
// tau = 0 has nu = (1 - 1/p) / 2 and reaches p + 1.
//
// Why at most d keys have no interference under orthant: features that are not negative are orthogonal only
// with disjoint supports. The map adds 1e-6 to every coordinate, so "none" is |nu| <= zero_score(d), which
// the basis keeps; d + 1 such keys cannot be, since a Gram matrix with d zero_score(d) < 1 beside a unit
// diagonal is dominated by its diagonal and thus has rank d + 1.
#pragma once

#include <string>
#include <vector>

#include "eval/capacity_power.h"
#include "eval/monitor.h"

namespace kata {

enum class Relation { none, equals, at_least, at_most };

struct CapacityRow {
  std::string part;  // power, welch, packing, wall, supports, certificates
  std::string map;   // "psd M 2"
  int64_t width = 0;
  int64_t features = 0;  // numbers of one feature: state per value column
  std::string what;
  int64_t keys = 0;  // T; 0 where the row is no set of keys
  double measured = 0;
  Relation relation = Relation::none;
  double bound = 0;
  double slack = 0;  // relative to the bound, or absolute where that is 0

  bool has_bound() const { return relation != Relation::none; }
  bool holds() const;  // as the relation says, within the slack; NaN does not hold
};

struct CapacityCurve {
  std::string map;
  int64_t width = 0;
  double expected = 0;  // power per key
  PowerCurve curve;
};

struct CapacityResults {
  CapacityConfig config;
  bool quick = false;
  std::vector<CapacityRow> rows;
  std::vector<CapacityCurve> curves;
  int64_t planned = 0, done = 0;  // units of work
  std::string commit;
  std::string date;  // UTC, ISO 8601

  bool complete() const { return done == planned; }
};

double zero_score(int64_t width);

// Stopped by the monitor it returns what is finished.
CapacityResults run_capacity(const CapacityConfig& config, bool quick, Monitor& monitor);

}  // namespace kata
