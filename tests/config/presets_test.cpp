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
  EXPECT_EQ(row("hermitian_kata"), "hermitian 1 add none normalised");
  EXPECT_EQ(row("quaternionic_kata"), "quaternionic 1 add none normalised");
  EXPECT_EQ(row("gatedkata_m1"), "psd 1 add scalar normalised");
  EXPECT_EQ(row("gatedkata_m2"), "psd 2 add scalar normalised");
  EXPECT_EQ(row("deltakata_m1"), "psd 1 delta none raw");
  EXPECT_EQ(row("deltakata_m2"), "psd 2 delta none raw");
  EXPECT_EQ(row("gateddeltakata_m1"), "psd 1 delta scalar raw");
  EXPECT_EQ(row("gateddeltakata_m2"), "psd 2 delta scalar raw");
  EXPECT_EQ(row("deltanet"), "identity 1 delta none raw");
  EXPECT_EQ(row("gated_deltanet"), "identity 1 delta scalar raw");
  EXPECT_EQ(row("mamba2"), "identity 1 add scalar raw");
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
  EXPECT_EQ(feature_width("hermitian", 1, 64), 1024);
  EXPECT_EQ(feature_width("quaternionic", 1, 64), 496);
  for (const char* map : {"identity", "orthant", "lorentz"}) EXPECT_EQ(feature_width(map, 1, 64), 64);
}

}  // namespace
}  // namespace kata
