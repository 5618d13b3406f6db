#include "tasks/mqar.h"

#include <fstream>
#include <map>
#include <set>

#include "data/batch.h"
#include "support/errors.h"
#include "support/run_program.h"
#include "support/temp_dir.h"

namespace kata {
namespace {

using test::fails_with;

// First 32 digits of the checksum of a set as zoology keeps it: int64 [examples, length], -100 where nothing
// is asked.
struct Checksums {
  std::string inputs, labels;
};

std::string sha256(const std::vector<int64_t>& values) {
  const test::TempDir dir;
  const std::string path = dir / "values.bin";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * 8));
  return test::run_program({"/usr/bin/sha256sum", path}).out.substr(0, 32);
}

Checksums checksums(const MqarSpec& spec) {
  const MqarData data(spec);
  const auto length = static_cast<size_t>(spec.length);
  std::vector<int32_t> inputs(length), targets(length);
  std::vector<int64_t> all_inputs, all_labels;
  for (int64_t row = 0; row < spec.examples; ++row) {
    data.render(row, inputs.data(), targets.data());
    all_inputs.insert(all_inputs.end(), inputs.begin(), inputs.end());
    for (const int32_t target : targets) all_labels.push_back(target == kNoTarget ? -100 : target);
  }
  return {sha256(all_inputs), sha256(all_labels)};
}

struct Golden {
  bool test;
  size_t index;  // of the segment's seed
  int64_t length, examples, pairs;
  const char *inputs, *labels;
};

class MqarGolden : public ::testing::TestWithParam<Golden> {};

TEST_P(MqarGolden, EqualsZoologyToTheBit) {
  const Golden& g = GetParam();
  const auto seeds = segment_seeds(123, 5, 7);
  const uint32_t seed = g.test ? seeds.test[g.index] : seeds.train[g.index];
  const Checksums found = checksums({g.length, g.pairs, g.examples, 8192, seed});
  EXPECT_EQ(found.inputs, g.inputs);
  EXPECT_EQ(found.labels, g.labels);
}

INSTANTIATE_TEST_SUITE_P(
    Sets, MqarGolden,
    ::testing::Values(
        Golden{true, 0, 64, 1000, 4, "f48dbe0ef6c9753d64bafd26f23503f4", "36e8ea5776aeebcc1ca7aa0608638abe"},
        Golden{true, 1, 64, 1000, 8, "193d1540bb7147f41effc0ff72ca9515", "d12aa80276ca22e9e336d1c88664ad0d"},
        Golden{true, 2, 64, 1000, 16, "55ffa8568988118806937ec61191ab10", "1dfa0064215f84da98d5f272e943b496"},
        Golden{true, 3, 128, 1000, 32, "37c4d8ab6e13d966203ac8da767171bb",
               "9bb637f63582acd257c2fa61b8902d5a"},
        Golden{true, 4, 256, 1000, 64, "2f668c3d4f1b5d947242495128543000",
               "34d61f3423106e878e8cb574b2b4eafb"},
        Golden{true, 6, 1024, 1000, 256, "2ebb4a9d6d01c9a67fa70686a52d643e",
               "2354543e0f1eaf1e16b561c7d3b4d0ae"},
        Golden{false, 0, 64, 100000, 4, "c8dc7aefd250c5a5d7adb03134637a4e",
               "c1dc34fe5da58221e642678eb537699e"},
        Golden{false, 1, 128, 20000, 8, "05a608695fc545c5fcf0d68b5aef7981",
               "eac0dec4c61bc828ad222accca82fe44"},
        Golden{false, 2, 256, 20000, 16, "bafb8cb4130992857e329f2fc8de76f4",
               "d9fb4b5507cb2c61c7cbd67a7f197268"},
        Golden{false, 4, 256, 20000, 64, "a9aba04fbe05b42240c6a71a90c74582",
               "85b3698a9756bfef8cc94930a832eb29"}),
    [](const auto& info) {
      const Golden& g = info.param;
      return fmt::format("{}_{}x{}_{}_pairs", g.test ? "test" : "train", g.examples, g.length, g.pairs);
    });

TEST(Mqar, TheTinySet) {
  const MqarSpec spec{32, 4, 3, 64, 0};
  const Checksums found = checksums(spec);
  EXPECT_EQ(found.inputs, "c843e416d134a5cfbc83a2c7e39a025d");
  EXPECT_EQ(found.labels, "7642e0ef6537845d2fb802cf1eea97ec");

  struct Query {
    int32_t key;
    size_t position;
    int32_t value;
  };
  const std::vector<std::vector<int32_t>> contexts = {
      {3, 42, 30, 38, 14, 62, 11, 44}, {14, 45, 7, 44, 26, 39, 9, 47}, {22, 47, 27, 52, 13, 42, 29, 54}};
  const std::vector<std::vector<Query>> queries = {
      {{3, 8, 42}, {14, 14, 62}, {11, 16, 44}, {30, 28, 38}},
      {{14, 8, 45}, {7, 10, 44}, {26, 14, 39}, {9, 18, 47}},
      {{27, 8, 52}, {13, 10, 42}, {22, 16, 47}, {29, 18, 54}},
  };
  const MqarData data(spec);
  for (size_t row = 0; row < 3; ++row) {
    std::vector<int32_t> expected_inputs(contexts[row]), expected_targets(32, kNoTarget);
    expected_inputs.resize(32, 0);
    for (const Query& q : queries[row]) {
      expected_inputs[q.position] = q.key;
      expected_targets[q.position] = q.value;
    }
    std::vector<int32_t> inputs(32, 99), targets(32, 99);
    data.render(static_cast<int64_t>(row), inputs.data(), targets.data());
    EXPECT_EQ(inputs, expected_inputs) << row;
    EXPECT_EQ(targets, expected_targets) << row;
  }
}

TEST(Mqar, SeedsOfTheSegments) {
  const auto many = segment_seeds(123, 5, 7);
  EXPECT_EQ(many.train, (std::vector<uint32_t>{843828734, 914636141, 1228959102, 1840268610, 974319580}));
  EXPECT_EQ(many.test, (std::vector<uint32_t>{2967327842, 2367878886, 3088727057, 3090095699, 4256823402,
                                              3964712059, 3350193721}));
  const auto one = segment_seeds(123, 1, 1);
  EXPECT_EQ(one.train, std::vector<uint32_t>{843828734});
  EXPECT_EQ(one.test, std::vector<uint32_t>{3062119789});
  EXPECT_TRUE(segment_seeds(123, 0, 0).train.empty());
}

// What the task promises, on shapes at its limits.
class MqarShapes : public ::testing::TestWithParam<MqarSpec> {};

TEST_P(MqarShapes, EachKeyIsAskedOnceAndAnsweredByItsValue) {
  const MqarSpec& spec = GetParam();
  const MqarData data(spec);
  const auto length = static_cast<size_t>(spec.length), context = static_cast<size_t>(2 * spec.pairs);
  std::vector<int32_t> inputs(length), targets(length);
  for (int64_t row = 0; row < spec.examples; ++row) {
    data.render(row, inputs.data(), targets.data());
    std::map<int32_t, int32_t> value_of;
    std::set<int32_t> values;
    for (size_t i = 0; i < context; i += 2) {
      EXPECT_GE(inputs[i], 1);
      EXPECT_LT(inputs[i], spec.vocab / 2);
      EXPECT_GE(inputs[i + 1], spec.vocab / 2);
      EXPECT_LT(inputs[i + 1], spec.vocab);
      value_of[inputs[i]] = inputs[i + 1];
      values.insert(inputs[i + 1]);
      EXPECT_EQ(targets[i], kNoTarget);
      EXPECT_EQ(targets[i + 1], kNoTarget);
    }
    EXPECT_EQ(value_of.size(), static_cast<size_t>(spec.pairs));
    EXPECT_EQ(values.size(), static_cast<size_t>(spec.pairs));
    for (size_t i = context; i < length; ++i) {
      if (inputs[i] == 0) {
        EXPECT_EQ(targets[i], kNoTarget);
        continue;
      }
      EXPECT_EQ(i % 2, 0u);
      ASSERT_TRUE(value_of.contains(inputs[i]));
      EXPECT_EQ(targets[i], value_of[inputs[i]]);
      value_of.erase(inputs[i]);
    }
    EXPECT_TRUE(value_of.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Limits, MqarShapes,
                         ::testing::Values(MqarSpec{4, 1, 20, 5, 1},       // all at their smallest
                                           MqarSpec{64, 16, 20, 66, 2},    // as many slots as pairs
                                           MqarSpec{12, 3, 20, 13, 3},     // odd vocabulary
                                           MqarSpec{40, 10, 20, 41, 4},    // half of all keys
                                           MqarSpec{1024, 3, 5, 1025, 5},  // many slots
                                           MqarSpec{64, 4, 5, 200000, 6},  // ids beyond 16 bits
                                           MqarSpec{64, 4, 5, 8192, 4294967295u}));

TEST(Mqar, RefusesWhatCannotBeMade) {
  const auto refused = [](const MqarSpec& spec, std::vector<std::string> parts) {
    parts.push_back("mqar");
    return fails_with(ExitCode::usage, parts, [&] { MqarData data(spec); });
  };
  EXPECT_TRUE(refused({63, 4, 10, 8192, 0}, {"length 63", "even"}));
  EXPECT_TRUE(refused({64, 17, 10, 8192, 0}, {"pairs 17", "4 * pairs"}));
  EXPECT_TRUE(refused({0, 1, 10, 8192, 0}, {"4 * pairs"}));
  EXPECT_TRUE(refused({-4, 1, 10, 8192, 0}, {"4 * pairs"}));
  EXPECT_TRUE(refused({64, 4, 10, 64, 0}, {"vocab 64", "larger than the length"}));
  EXPECT_TRUE(refused({64, 4, 10, int64_t{1} << 40, 0}, {"16777216"}));
  EXPECT_TRUE(refused({64, 0, 10, 8192, 0}, {"pairs 0", "at least 1 pair"}));
  EXPECT_TRUE(refused({64, 4, 0, 8192, 0}, {"examples 0", "at least 1 example"}));
  EXPECT_TRUE(refused({64, 4, int64_t{1} << 50, 8192, 0}, {"1073741824"}));
  EXPECT_TRUE(refused({64, int64_t{1} << 62, 1, 8192, 0}, {"4 * pairs"}));
  EXPECT_NO_THROW(check_mqar({64, 16, 10, 65, 0}));
}

}  // namespace
}  // namespace kata
