#include "config/capacity_config.h"

#include <sstream>

#include "config/config_files.h"

namespace kata {
namespace {

using test::ConfigFiles;

// Lines 1 to 4; tests add lines from 5 on.
const std::string good =
    "suite: capacity\n"
    "maps:\n"
    "  - {map: lorentz}\n"
    "  - {map: psd, groups: 2}\n";

class Capacity : public ::testing::Test {
 protected:
  CapacityConfig load(const std::string& text, bool quick = false,
                      const std::vector<std::string>& overrides = {}) {
    return load_capacity_config(files.write("c.yaml", text), quick, overrides);
  }
  std::string error(const std::string& text, bool quick = false,
                    const std::vector<std::string>& overrides = {}) {
    return files.message([&] { load(text, quick, overrides); });
  }
  ConfigFiles files;
};

TEST_F(Capacity, LoadsAndDumps) {
  const CapacityConfig config = load(good + "widths: [4, 6]\nquick: {widths: [2], power: {pairs: 7}}\n");
  ASSERT_EQ(config.maps.size(), 2u);
  EXPECT_EQ(config.maps[0].groups, 1);
  EXPECT_EQ(config.maps[1].groups, 2);
  EXPECT_EQ(config.widths, (std::vector<double>{4, 6}));
  EXPECT_EQ(dump(load(dump(config))), dump(config));
  const CapacityConfig quick =
      load(good + "widths: [4, 6]\nquick: {widths: [2], power: {pairs: 7}}\n", true, {"seed=9"});
  EXPECT_EQ(quick.widths, (std::vector<double>{2}));
  EXPECT_EQ(quick.power.pairs, 7);
  EXPECT_EQ(quick.seed, 9u);
}

TEST_F(Capacity, FaultsAreNamed) {
  EXPECT_EQ(error(good, true), "c.yaml: the suite has no quick: map; run it without --quick");
  EXPECT_EQ(error(good + "quick: 3\n"), "c.yaml:5:8: quick: expected a map of keys of this file, found '3'");
  EXPECT_EQ(error(good + "quick: {width: [8]}\n"), "c.yaml:5:9: width: unknown key; did you mean 'widths'?");
  EXPECT_EQ(error("suite: capacity\n"),
            "c.yaml: maps: empty; give a list such as [{map: psd}, {map: lorentz}]");
  EXPECT_EQ(error("maps: [{map: psd}]\n"), "c.yaml:1:1: suite: is missing: capacity: this suite");
  EXPECT_EQ(error(good, false, {"suite=mqar"}),
            "--set suite=mqar: suite: 'mqar' is not measured by these keys; expected capacity");
  EXPECT_EQ(error(good, false, {"maps.0.groups=2"}),
            "--set maps.0.groups=2: maps.0.groups: 2 groups of lorentz; only psd and psd_sum have groups");
  EXPECT_EQ(error(good + "  - {map: psd, groups: 2}\n"),
            "c.yaml:5:5: maps.2: psd with 2 groups is given twice");
  EXPECT_EQ(error(good + "widths: [4, 7]\n"),
            "c.yaml:4:5: maps.1: psd needs widths that 2 divides, but widths has 7");
  EXPECT_EQ(error(good + "widths: [4, 7.5]\n"),
            "c.yaml:5:9: widths.1: 7.5 is not whole; a width is a number of coordinates");
  EXPECT_EQ(error(good + "widths: [4, 4]\n"), "c.yaml:5:9: widths.1: 4 is given twice");
  EXPECT_EQ(error(good + "widths: []\n"), "c.yaml:5:9: widths: empty; give at least one width");
  EXPECT_EQ(error(good + "widths: [4, 512]\n"),
            "c.yaml:5:13: widths.1: expected a finite number, 2 to 256, found '512'");
  EXPECT_EQ(error(good + "packing: {eps: []}\n"), "c.yaml:5:16: packing.eps: empty; give at least one score");
  EXPECT_EQ(error(good + "packing: {eps: [0.1, 1]}\n"),
            "c.yaml:5:22: packing.eps.1: expected a finite number, above 0 to below 1, found '1'");
  EXPECT_EQ(error(good + "packing: {eps: [0.1, 0.1]}\n"), "c.yaml:5:16: packing.eps: 0.1 is given twice");
  EXPECT_EQ(error(good + "power: {pairs: 0}\n"),
            "c.yaml:5:16: power.pairs: expected an integer, 1 to 1000000000, found '0'");
}

TEST_F(Capacity, TheKindOfASuiteFile) {
  EXPECT_EQ(suite_of_file(files.write("a.yaml", good)), "capacity");
  EXPECT_EQ(suite_of_file(files.write("b.yaml", "suite: [1]\n")), "");
  EXPECT_EQ(suite_of_file(files.write("d.yaml", "model: {}\n")), "");
  EXPECT_EQ(files.message([&] { suite_of_file(files.path("none.yaml")); }).substr(0, 10), "none.yaml:");
}

TEST_F(Capacity, EveryKeyIsDocumented) {
  std::ifstream in(std::string(KATA_SOURCE_DIR) + "/configs/README.md");
  std::stringstream readme;
  readme << in.rdbuf();
  EXPECT_NE(readme.str().find(capacity_reference()), std::string::npos) << "configs/README.md should hold:\n"
                                                                        << capacity_reference();
}

TEST_F(Capacity, TheOneThatShipsLoads) {
  for (const bool quick : {false, true}) {
    const CapacityConfig config =
        load_capacity_config(std::string(KATA_SOURCE_DIR) + "/configs/suites/capacity.yaml", quick, {});
    for (const char* map : {"identity", "orthant", "lorentz", "psd", "psd_sum"})
      EXPECT_TRUE(std::any_of(config.maps.begin(), config.maps.end(), [&](const CapacityMap& row) {
        return row.map == map;
      })) << map;
  }
}

}  // namespace
}  // namespace kata
