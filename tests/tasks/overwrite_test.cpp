#include "tasks/overwrite.h"

#include <map>
#include <set>

#include "data/batch.h"
#include "support/errors.h"

namespace kata {
namespace {

using test::fails_with;

struct Row {
  std::vector<int32_t> inputs, targets;
};
Row rendered(const ExampleSet& data, int64_t row, int64_t length) {
  Row out{std::vector<int32_t>(static_cast<size_t>(length), 99),
          std::vector<int32_t>(static_cast<size_t>(length), 99)};
  data.render(row, out.inputs.data(), out.targets.data());
  return out;
}

// zoology's forgetting_mqar with V = 100, L = 32, m = 4, two updates, seed 42 and zeros.
TEST(OverwriteGolden, EqualsZoology) {
  struct Asked {
    int32_t key;
    size_t position;
    int32_t value;
  };
  const std::vector<std::vector<int32_t>> contexts = {{14, 96, 46, 87, 48, 89, 45, 53, 48, 51, 46, 84},
                                                      {30, 74, 39, 56, 3, 90, 46, 64, 39, 65, 46, 91},
                                                      {40, 85, 49, 78, 2, 62, 6, 66, 2, 86, 49, 83}};
  const std::vector<std::vector<Asked>> questions = {
      {{14, 12, 96}, {46, 14, 84}, {45, 18, 53}, {48, 30, 51}},
      {{46, 14, 91}, {39, 18, 65}, {3, 22, 90}, {30, 26, 74}},
      {{2, 12, 86}, {49, 14, 83}, {40, 16, 85}, {6, 20, 66}},
  };
  const OverwriteData data({32, 4, 3, 100, 42, 1, 2, "zoology"});
  for (size_t row = 0; row < 3; ++row) {
    std::vector<int32_t> inputs(contexts[row]), targets(32, kNoTarget);
    inputs.resize(32, 0);
    for (const Asked& q : questions[row]) {
      inputs[q.position] = q.key;
      targets[q.position] = q.value;
    }
    const Row found = rendered(data, static_cast<int64_t>(row), 32);
    EXPECT_EQ(found.inputs, inputs) << row;
    EXPECT_EQ(found.targets, targets) << row;
  }
}

// What the task promises, on shapes at its limits.
class OverwriteShapes : public ::testing::TestWithParam<OverwriteSpec> {};

// The bindings of a row: counts, ids, and that the question's label is the value bound last.
TEST_P(OverwriteShapes, TheLatestValueIsTheAnswer) {
  const OverwriteSpec& spec = GetParam();
  const OverwriteData data(spec);
  const auto m = static_cast<size_t>(spec.pairs), n = static_cast<size_t>(spec.bindings());
  for (int64_t row = 0; row < spec.examples; ++row) {
    const Row r = rendered(data, row, spec.length);
    std::map<int32_t, std::vector<int32_t>> values_of;
    std::set<int32_t> values;
    for (size_t i = 0; i < 2 * n; i += 2) {
      const int32_t key = r.inputs[i], value = r.inputs[i + 1];
      EXPECT_TRUE(key >= 1 && key < spec.vocab / 2) << key;
      EXPECT_TRUE(value >= spec.vocab / 2 && value < spec.vocab) << value;
      values_of[key].push_back(value);
      values.insert(value);
      EXPECT_EQ(r.targets[i], kNoTarget);
      EXPECT_EQ(r.targets[i + 1], kNoTarget);
    }
    EXPECT_EQ(values_of.size(), m);
    if (spec.layout != "zoology") {
      EXPECT_EQ(values.size(), n) << "all values differ";
    }
    int64_t rewritten = 0;
    for (const auto& [key, bound] : values_of) {
      rewritten += bound.size() > 1;
      EXPECT_TRUE(bound.size() == 1 || static_cast<int64_t>(bound.size()) == spec.rewrites + 1);
    }
    EXPECT_EQ(rewritten, spec.rewritten);

    std::vector<Question> questions;
    data.questions(row, questions);
    ASSERT_EQ(questions.size(), m);
    std::set<int64_t> positions;
    for (const Question& question : questions) {
      const auto at = static_cast<size_t>(question.position);
      ASSERT_TRUE(at >= 2 * n && at < r.inputs.size() && at % 2 == 0) << at;
      positions.insert(question.position);
      EXPECT_EQ(r.inputs[at], question.key);
      EXPECT_EQ(question.values, values_of[question.key]) << "in the order of the bindings";
      EXPECT_EQ(r.targets[at], values_of[question.key].back());
    }
    EXPECT_EQ(positions.size(), m) << "every key is asked for once";
    for (size_t i = 2 * n; i < r.inputs.size(); ++i)
      if (!positions.contains(static_cast<int64_t>(i))) {
        EXPECT_EQ(r.inputs[i], 0);
        EXPECT_EQ(r.targets[i], kNoTarget);
      }
  }
}

TEST_P(OverwriteShapes, BlocksComeInRounds) {
  const OverwriteSpec& spec = GetParam();
  if (spec.layout == "interleaved") return;
  const OverwriteData data(spec);
  for (int64_t row = 0; row < spec.examples; ++row) {
    const Row r = rendered(data, row, spec.length);
    std::set<int32_t> first, again;
    for (int64_t p = 0; p < spec.pairs; ++p) first.insert(r.inputs[static_cast<size_t>(2 * p)]);
    EXPECT_EQ(static_cast<int64_t>(first.size()), spec.pairs) << "the first bindings of all keys";
    for (int64_t round = 0; round < spec.rewrites; ++round) {
      std::set<int32_t> keys;
      for (int64_t u = 0; u < spec.rewritten; ++u)
        keys.insert(r.inputs[static_cast<size_t>(2 * (spec.pairs + round * spec.rewritten + u))]);
      EXPECT_EQ(static_cast<int64_t>(keys.size()), spec.rewritten);
      EXPECT_TRUE(round == 0 || keys == again) << "the same keys in every round";
      again = keys;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Limits, OverwriteShapes,
    ::testing::Values(OverwriteSpec{6, 1, 20, 7, 1, 1, 1, "block"},    // all at their smallest
                      OverwriteSpec{64, 8, 20, 65, 2, 2, 8, "block"},  // as many slots as keys
                      OverwriteSpec{64, 8, 20, 67, 3, 2, 8, "interleaved"},
                      OverwriteSpec{64, 8, 20, 256, 4, 2, 4, "block"},
                      OverwriteSpec{128, 5, 20, 8192, 5, 7, 3, "interleaved"},
                      OverwriteSpec{1024, 2, 5, 1025, 6, 4, 1, "block"},      // many slots
                      OverwriteSpec{4096, 512, 2, 8192, 7, 4, 256, "block"},  // the longest of the suite
                      OverwriteSpec{64, 8, 20, 65, 8, 1, 8, "zoology"},
                      OverwriteSpec{64, 4, 5, 200000, 4294967295u, 2, 2, "interleaved"}),
    [](const auto& info) {
      const OverwriteSpec& s = info.param;
      return fmt::format("{}_{}x{}_r{}_u{}_v{}", s.layout, s.length, s.pairs, s.rewrites, s.rewritten,
                         s.vocab);
    });

TEST(Overwrite, TheSeedDecidesTheExamplesAndNothingElse) {
  const auto all = [](const OverwriteSpec& spec) {
    const OverwriteData data(spec);
    std::vector<int32_t> tokens;
    for (int64_t row = spec.examples - 1; row >= 0; --row) {
      const Row r = rendered(data, row, spec.length);
      tokens.insert(tokens.end(), r.inputs.begin(), r.inputs.end());
      tokens.insert(tokens.end(), r.targets.begin(), r.targets.end());
    }
    return tokens;
  };
  std::set<std::vector<int32_t>> different;
  for (const char* layout : {"block", "interleaved"})
    for (const uint32_t seed : {1u, 2u}) {
      const OverwriteSpec spec{64, 6, 10, 128, seed, 2, 3, layout};
      EXPECT_EQ(all(spec), all(spec));
      different.insert(all(spec));
    }
  EXPECT_EQ(different.size(), 4u);
}

// Which keys are rewritten, in which order, and where a binding stands is left to chance: each of 4 keys is
// rewritten in about half of 4000 examples, and in the interleaved layout a first binding can come last.
TEST(Overwrite, ChoicesAreEven) {
  for (const char* layout : {"block", "interleaved", "zoology"}) {
    const OverwriteSpec spec{32, 4, 4000, 64, 9, 1, 2, layout};
    const OverwriteData data(spec);
    std::vector<Question> questions;
    std::vector<int64_t> rewritten(4);
    int64_t once_last = 0;
    for (int64_t row = 0; row < spec.examples; ++row) {
      data.questions(row, questions);
      const Row r = rendered(data, row, spec.length);
      for (size_t p = 0; p < 4; ++p) {
        rewritten[p] += questions[p].values.size() > 1;
        once_last += questions[p].values.size() == 1 && r.inputs[10] == questions[p].key;
      }
    }
    for (const int64_t count : rewritten) EXPECT_NEAR(static_cast<double>(count), 2000, 150) << layout;
    // Two of six bindings are of keys that are bound once.
    EXPECT_NEAR(static_cast<double>(once_last), std::string(layout) == "interleaved" ? 4000.0 / 3 : 0, 150);
  }
}

TEST(Overwrite, RefusesWhatCannotBeMade) {
  const auto refused = [](const OverwriteSpec& spec, const std::string& message) {
    return fails_with(ExitCode::usage, {message}, [&] { OverwriteData data(spec); });
  };
  const OverwriteSpec good{64, 8, 10, 8192, 0, 2, 8, "block"};
  EXPECT_NO_THROW(check_overwrite(good));
  const auto with = [&](auto&& change) {
    OverwriteSpec spec = good;
    change(spec);
    return spec;
  };
  const std::string start =
      "overwrite: length 64, pairs 8, rewrites 2, rewritten 8, layout block, examples 10, ";
  EXPECT_TRUE(refused(with([](auto& s) { s.vocab = 64; }),
                      start + "vocab 64: the vocabulary must be larger than the length"));
  EXPECT_TRUE(refused(with([](auto& s) { s.vocab = int64_t{1} << 40; }),
                      start + "vocab 1099511627776: expected a vocabulary of at most 16777216"));
  const std::string fit =
      ": 2 * (pairs + rewrites * rewritten) + 2 * pairs must not exceed the length; lengthen the rows or ask "
      "for "
      "fewer";
  EXPECT_TRUE(refused(with([](auto& s) { s.rewrites = 3; }), "vocab 8192" + fit));
  EXPECT_TRUE(refused(with([](auto& s) { s.length = 62; }), fit));
  EXPECT_TRUE(refused(with([](auto& s) { s.length = 0; }), fit));
  EXPECT_TRUE(refused(with([](auto& s) { s.length = -64; }), fit));
  EXPECT_TRUE(refused(with([](auto& s) { s.pairs = s.rewritten = int64_t{1} << 62; }), fit));
  EXPECT_TRUE(refused(with([](auto& s) { s.rewrites = int64_t{1} << 62; }), fit));
  EXPECT_TRUE(refused(with([](auto& s) { s.length = INT64_MAX - 1; }), fit));
  EXPECT_TRUE(refused(with([](auto& s) { s.length = 65; }), "length 65, "));
  EXPECT_TRUE(refused(with([](auto& s) { s.length = 65; }), ": the length must be even"));
  EXPECT_TRUE(refused(with([](auto& s) { s.examples = 0; }), ": expected at least 1 example"));
  EXPECT_TRUE(refused(with([](auto& s) { s.pairs = 0; }), ": expected at least 1 pair"));
  EXPECT_TRUE(refused(with([](auto& s) { s.rewrites = 0; }),
                      ": expected at least 1 rewrite; without one the task is mqar"));
  EXPECT_TRUE(refused(with([](auto& s) { s.rewritten = 0; }), ": expected 1 to pairs rewritten keys"));
  EXPECT_TRUE(refused(with([](auto& s) { s.rewritten = 9; }), ": expected 1 to pairs rewritten keys"));
  EXPECT_TRUE(
      refused(with([](auto& s) { s.layout = "blocks"; }),
              "layout blocks, examples 10, vocab 8192: expected layout block, interleaved or zoology"));
  EXPECT_TRUE(
      refused(with([](auto& s) { s.layout = "zoology"; }), ": the zoology layout has exactly 1 rewrite"));
  EXPECT_TRUE(refused(with([](auto& s) { s.examples = int64_t{1} << 50; }),
                      ": examples * (pairs + rewrites * rewritten) must not exceed 536870912"));
}

}  // namespace
}  // namespace kata
