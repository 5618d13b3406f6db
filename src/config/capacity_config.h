// The capacity suite: how many keys the maps tell apart (MATH: capacity); nothing is trained.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/presets.h"
#include "config/schema.h"

namespace kata {

constexpr const char* capacity_suite = "capacity";  // `suite:` of its files

struct CapacityMap {
  std::string map;
  int64_t groups = 1;

  template <class Visitor>
  void visit(Visitor& v) {
    v.required("map", map, one_of(map_names()), "feature map of keys");
    v.field("groups", groups, between(1, 256), "groups of psd and psd_sum; they divide every width");
  }
};

struct CapacityPower {
  int64_t pairs = 400'000;
  int64_t max_keys = 4096;

  template <class Visitor>
  void visit(Visitor& v) {
    v.field("pairs", pairs, between(1, 1'000'000'000),
            "pairs of random keys per point, over several draws of keys; more = less noise");
    v.field("max_keys", max_keys, between(2, 65536), "keys at which a curve ends that has not crossed 1");
  }
};

struct CapacityWelch {
  int64_t candidates = 64;
  int64_t steps = 600;

  template <class Visitor>
  void visit(Visitor& v) {
    v.field("candidates", candidates, between(1, 65536), "random keys from which greedy takes each next one");
    v.field("steps", steps, between(0, 100'000), "descent steps that spread random keys");
  }
};

struct CapacityPacking {
  int64_t candidates = 8192;
  std::vector<double> eps = {0.05, 0.1, 0.2};

  template <class Visitor>
  void visit(Visitor& v) {
    v.field("candidates", candidates, between(1, 65536), "random keys that are offered");
    v.field("eps", eps, Range<double>{0, 1, true, true}, "largest normalised scores of two kept keys");
  }
};

struct CapacityWall {
  int64_t candidates = 4096;
  int64_t steps = 600;
  int64_t restarts = 4;

  template <class Visitor>
  void visit(Visitor& v) {
    v.field("candidates", candidates, between(1, 65536), "random keys that are offered");
    v.field("steps", steps, between(0, 100'000), "descent steps against the Lorentz wall");
    v.field("restarts", restarts, between(1, 1000), "random starts of the descent");
  }
};

struct CapacitySupports {
  int64_t candidates = 4096;

  template <class Visitor>
  void visit(Visitor& v) {
    v.field("candidates", candidates, between(1, 65536), "sparse random keys offered to orthant");
  }
};

struct CapacityCertificates {
  int64_t draws = 64;

  template <class Visitor>
  void visit(Visitor& v) {
    v.field("draws", draws, between(2, 512), "random keys, all pairs of which are checked");
  }
};

struct CapacityConfig {
  std::string suite;
  std::vector<CapacityMap> maps;
  std::vector<double> widths = {8, 16, 32, 64};  // whole numbers
  uint64_t seed = 1;
  int64_t threads = 0;
  CapacityPower power;
  CapacityWelch welch;
  CapacityPacking packing;
  CapacityWall wall;
  CapacitySupports supports;
  CapacityCertificates certificates;

  template <class Visitor>
  void visit(Visitor& v) {
    v.required("suite", suite, text(), "capacity: this suite");
    v.list("maps", maps, "the maps to compare");
    v.field("widths", widths, Range<double>{2, 256}, "key widths d, whole numbers");
    v.field("seed", seed, any_seed(), "seed of all random keys");
    v.field("threads", threads, between(0, 4096), "processor threads; 0 = all cores; changes no bit");
    v.section("power", power, "interference of random keys");
    v.section("welch", welch, "coherence of the best sets of keys");
    v.section("packing", packing, "keys kept below a given score");
    v.section("wall", wall, "keys kept below a normalised score of 1/2");
    v.section("supports", supports, "keys without any interference, orthant");
    v.section("certificates", certificates, "properties that certify the maps");
  }
};

// The `suite:` of a suite file, "capacity" for this kind; empty where it names none. ExitCode::usage where
// the file cannot be read.
std::string suite_of_file(const std::string& path);

// As load_suite_config: with `quick`, the file's `quick:` map is laid over it.
CapacityConfig load_capacity_config(const std::string& path, bool quick,
                                    const std::vector<std::string>& overrides);

std::string dump(const CapacityConfig& config);
std::string capacity_reference();

// Real numbers of one coordinate of a map's keys: 2 where they are complex, 4 where quaternionic.
int64_t coordinate_size(const std::string& map);

}  // namespace kata
