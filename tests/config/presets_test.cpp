#include "config/presets.h"

#include <gtest/gtest.h>
#include <sstream>

namespace kata {
namespace {

TEST(Presets, AreTheRowsOfTheDesign) {
  const auto row = [](const std::string& name) {
    const Preset* p = find_preset(name);
    return p == nullptr ? std::string("none")
                        : std::string(p->map) + " " + std::to_string(p->groups) + " " + p->update + " " +
                              p->decay + " " + p->read;
  };
  EXPECT_EQ(row("softmax"), " 1 add none softmax");
  EXPECT_EQ(row("linear_orthant"), "orthant 1 add none normalised");
  EXPECT_EQ(row("linear_lorentz"), "lorentz 1 add none normalised");
  EXPECT_EQ(row("kata_m1"), "psd 1 add none normalised");
  EXPECT_EQ(row("kata_m2"), "psd 2 add none normalised");
  EXPECT_EQ(row("kata_m4"), "psd 4 add none normalised");
  EXPECT_EQ(row("kata_s2"), "psd_sum 2 add none normalised");
  EXPECT_EQ(row("kata_s4"), "psd_sum 4 add none normalised");
  EXPECT_EQ(row("kata_m3"), "none");
  EXPECT_EQ(row(""), "none");
}

// The widths that MATH section 1 gives for d = 64.
TEST(Presets, FeatureWidths) {
  EXPECT_EQ(feature_width("psd", 1, 64), 2080);
  EXPECT_EQ(feature_width("psd", 2, 64), 1056);
  EXPECT_EQ(feature_width("psd", 4, 64), 544);
  EXPECT_EQ(feature_width("psd_sum", 2, 64), 528);
  EXPECT_EQ(feature_width("psd_sum", 4, 64), 136);
  for (const char* map : {"identity", "orthant", "lorentz"}) EXPECT_EQ(feature_width(map, 1, 64), 64);
  // 2 heads of 64 hold 266,240 (M1) and 135,168 (M2) entries, mass not counted (MATH section 6).
  EXPECT_EQ(2 * state_entries("psd", 1, "raw", 64, 64), 266240);
  EXPECT_EQ(2 * state_entries("psd", 2, "raw", 64, 64), 135168);
  EXPECT_EQ(state_entries("psd", 2, "normalised", 64, 32), 1056 * 33);
  EXPECT_EQ(state_entries("", 1, "softmax", 64, 64), 0);
}

TEST(Presets, ListIsATableWithALinePerPreset) {
  std::istringstream lines(list_mixers());
  std::string header, line;
  std::getline(lines, header);
  EXPECT_EQ(header.rfind("preset ", 0), 0u);
  EXPECT_NE(header.find("state"), std::string::npos);
  for (const Preset& preset : presets()) {
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_EQ(line.substr(0, line.find(' ')), preset.name);
    if (line.rfind("kata_s4", 0) == 0) {
      EXPECT_NE(line.find(" 8840 "), std::string::npos) << line;
    }
    if (line.rfind("softmax", 0) == 0) {
      EXPECT_NE(line.find(" 128 T "), std::string::npos) << line;
    }
  }
}

}  // namespace
}  // namespace kata
