// Results and samples files, and the comparison of two of them.
#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "eval/harness/compare_samples.h"
#include "eval/harness/result_files.h"
#include "support/temp_dir.h"

namespace kata::harness {
namespace {

// One task on our fixtures, answered by the dummy model.
TaskResult answered(const char* task) {
  RunOptions options;
  options.data = std::string(KATA_SOURCE_DIR) + "/tests/eval/fixtures";
  options.compat = compat_preset("lm-eval-head");
  std::vector<TaskResult> results;
  results.push_back(prepare_task(find_task(task), options));
  DummyScorer dummy;
  EXPECT_TRUE(answer_tasks(results, dummy, [](int64_t, int64_t) { return true; }));
  measure_task(results[0], 10);
  return results[0];
}

TEST(HarnessFiles, ALineOfSamples) {
  const TaskResult result = answered("arc_easy");
  const std::string lines = samples_jsonl(result);
  const Json line = Json::parse(lines.substr(0, lines.find('\n')));
  std::vector<std::string> keys;
  for (const auto& [key, value] : line.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"doc_id", "doc", "target", "arguments", "resps", "filtered_resps",
                                            "filter", "metrics", "doc_hash", "prompt_hash", "target_hash",
                                            "acc", "acc_norm"}));
  EXPECT_EQ(line.at("target"), "1");
  EXPECT_EQ(line.at("arguments").at("gen_args_1").at("arg_1"), " ice");
  EXPECT_EQ(line.at("filtered_resps").at(0), (Json{"-0.8444218515250481", "False"}));
  EXPECT_EQ(line.at("resps").at(0).at(0), (Json{"-0.8444218515250481", "False"}));
}

TEST(HarnessFiles, ResultsAreStrictJson) {
  TaskResult result = answered("wikitext");
  result.aggregates[0].value = std::numeric_limits<double>::quiet_NaN();
  RunRecord record;
  record.model = {{"model", "dummy"}};
  record.model_name = "dummy";
  record.options.compat = compat_preset("lm-eval-0.4.8");
  test::TempDir dir;
  write_files({result}, record, dir.path(), dir / "copy.json");
  const std::string text = read_file(dir / "results.json");
  EXPECT_EQ(text, read_file(dir / "copy.json"));
  const Json json = Json::parse(text);
  EXPECT_TRUE(json.at("results").at("wikitext").at("word_perplexity,none").is_null());
  EXPECT_EQ(json.at("results").at("wikitext").at("bits_per_byte_stderr,none"), "N/A");
  EXPECT_EQ(json.at("n-samples").at("wikitext"), (Json{{"original", 4}, {"effective", 4}}));
  EXPECT_EQ(json.at("config").at("compat").at("name"), "lm-eval-0.4.8");
  EXPECT_EQ(json.at("config").at("compat").at("prefix"), "auto");
  EXPECT_TRUE(json.at("lm_eval_version").is_null());
  EXPECT_TRUE(json.at("producer").get<std::string>().starts_with("kataeval "));
  EXPECT_EQ(parse_jsonl("s", read_file(dir / "samples_wikitext.jsonl")).size(), 4u);
}

TEST(HarnessFiles, LikelihoodsThatAreNoNumbersAreCounted) {
  TaskResult result = answered("arc_easy");
  result.documents[0].answer.likelihoods[2].sum = std::numeric_limits<double>::quiet_NaN();
  for (DocumentResult& document : result.documents) document.measured.clear();
  result.aggregates.clear();
  measure_task(result, 10);
  EXPECT_EQ(result.not_finite, 1);
  EXPECT_NE(samples_jsonl(result).find("[\"nan\",\"False\"]"), std::string::npos);
}

// ---- comparison ----

class CompareSamples : public ::testing::Test {
 protected:
  SamplesDifference compare(const std::string& left, const std::string& right, double tolerance = 1e-4) {
    write_file_atomic(dir_ / "a.jsonl", left);
    write_file_atomic(dir_ / "b.jsonl", right);
    return compare_samples(dir_ / "a.jsonl", dir_ / "b.jsonl", tolerance);
  }
  static std::string with(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  }
  test::TempDir dir_;
};

TEST_F(CompareSamples, EqualFilesDoNotDiffer) {
  for (const char* task : {"arc_easy", "wikitext", "lambada_openai", "winogrande"}) {
    const std::string lines = samples_jsonl(answered(task));
    const SamplesDifference difference = compare(lines, lines);
    EXPECT_EQ(difference.count, 0) << task;
    EXPECT_GE(difference.documents, 3);
  }
}

TEST_F(CompareSamples, EveryPlantedFaultIsFound) {
  const std::string lines = samples_jsonl(answered("arc_easy"));
  const auto found = [&](const std::string& from, const std::string& to) {
    const SamplesDifference difference = compare(lines, with(lines, from, to));
    EXPECT_EQ(difference.count, 1) << from;
    return difference.first.empty() ? "" : difference.first[0];
  };
  EXPECT_EQ(found("\"target\":\"1\"", "\"target\":\"2\""), "document 0: target: \"1\" | \"2\"");
  EXPECT_EQ(found("\"arg_1\":\" ice\"", "\"arg_1\":\"  ice\""),
            "document 0: request 1, argument 1: \" ice\" | \"  ice\"");
  EXPECT_EQ(found("],\"filter\":\"none\"", ",[\"-1.0\",\"False\"]],\"filter\":\"none\"").substr(0, 19),
            "document 0: answer:");
  EXPECT_EQ(found("\"acc\":0.0", "\"acc\":1.0"), "document 0: acc: 0.0 | 1.0");
}

TEST_F(CompareSamples, LikelihoodsWithinTheTolerance) {
  const std::string line =
      R"({"doc_id": 1, "target": 3, "arguments": [["a", " b"]], "filtered_resps": [[-1.5, false]]})";
  const std::string other =
      R"({"doc_id": "1", "target": "3", "arguments": {"gen_args_0": {"arg_0": "a", "arg_1": " b"}},
                               "filtered_resps": [["-1.50005", "False"]]})";
  std::string joined = other;
  joined.erase(std::remove(joined.begin(), joined.end(), '\n'), joined.end());
  SamplesDifference difference = compare(line, joined);
  EXPECT_EQ(difference.count, 0);
  EXPECT_NEAR(difference.largest_likelihood, 5e-5, 1e-9);
  EXPECT_EQ(compare(line, joined, 1e-6).count, 1);
  difference = compare(line, with(joined, "False", "True"));
  EXPECT_EQ(difference.count, 1);
  EXPECT_EQ(difference.greedy, 1);
}

TEST_F(CompareSamples, NumbersThatPythonWritesAreRead) {
  const std::string line =
      R"({"doc_id": 0, "arguments": [["NaN \" Infinity"]], "metrics": ["acc"], "acc": NaN})";
  EXPECT_EQ(compare(line, line).count, 0);
  EXPECT_EQ(compare(line, with(line, "NaN}", "-Infinity}")).count, 1);
}

TEST_F(CompareSamples, StopsOfGenerations) {
  const std::string line =
      R"({"doc_id": 0, "arguments": [["a", {"until": ["\n"], "max_gen_toks": 48}]], "filtered_resps": ["lol"]})";
  EXPECT_EQ(compare(line, with(line, "48}", "48, \"do_sample\": false}")).count, 0);
  EXPECT_EQ(compare(line, with(line, "48", "256")).count, 1);
  EXPECT_EQ(compare(line, with(line, "lol", "lo")).count, 1);
}

TEST_F(CompareSamples, DocumentsOfOneFileAlone) {
  const std::string one = R"({"doc_id": 0, "arguments": []})", two = R"({"doc_id": 1, "arguments": []})";
  const SamplesDifference difference = compare(one + "\n" + two, two);
  EXPECT_EQ(difference.documents, 1);
  ASSERT_EQ(difference.count, 1);
  EXPECT_TRUE(difference.first[0].starts_with("document 0 is not in "));
  EXPECT_THROW(compare(one + "\n" + one, two), Error);
  EXPECT_THROW(compare(R"({"a": 1})", two), Error);
}

}  // namespace
}  // namespace kata::harness
