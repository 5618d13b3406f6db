// kataeval on language tasks, through its command line: a model trained here, the dummy model, comparisons,
// and what is refused.
#include "apps/workspace.h"

namespace kata {
namespace {

using test::expect_error;
using test::ProgramResult;
using test::spill;

const std::string fixtures = std::string(KATA_SOURCE_DIR) + "/tests/eval/fixtures";

class LanguageTasks : public ::testing::Test {
 protected:
  ProgramResult eval(std::vector<std::string> arguments) const {
    return space_.run("kataeval", std::move(arguments), {.environment = {{"OMP_NUM_THREADS", "1"}}});
  }
  ProgramResult tasks(const std::string& names, const std::string& model,
                      std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"--tasks", names, "--model", model, "--data", fixtures, "--bootstrap", "100"});
    return eval(std::move(more));
  }
  nlohmann::json results(const std::string& folder) const {
    return nlohmann::json::parse(space_.read(folder + "/results.json"));
  }
  test::Workspace space_;
};

TEST_F(LanguageTasks, TheDummyModel) {
  const ProgramResult result = tasks("arc_easy,wikitext,winogrande", "dummy", {"--json", "deep/x.json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* text : {"arc_easy", "acc_norm", "bits_per_byte", "N/A", "documents"})
    EXPECT_NE(result.out.find(text), std::string::npos) << text << " is not in " << result.out;
  EXPECT_NE(result.err.find("the published split (allenai/ai2_arc, ARC-Easy, test) has 2376"),
            std::string::npos);
  const nlohmann::json json = results("runs/eval-lm-dummy");
  EXPECT_EQ(json.at("results").size(), 3u);
  EXPECT_EQ(json.at("config").at("compat").at("name"), "lm-eval-head");
  EXPECT_EQ(nlohmann::json::parse(space_.read("deep/x.json")), json);
  EXPECT_TRUE(space_.exists("runs/eval-lm-dummy/samples_winogrande.jsonl"));
}

TEST_F(LanguageTasks, AModelWhateverTheBatch) {
  ASSERT_EQ(space_.train({"--steps", "4"}).exit_code, 0);
  const std::string names = "arc_easy,lambada_openai,wikitext,winogrande,piqa";
  for (const char* batch : {"1", "5", "32"}) {
    const ProgramResult run = tasks(
        names, "out", {"--batch-size", batch, "--output", std::string("b") + batch, "--max-length", "90"});
    ASSERT_EQ(run.exit_code, 0) << run.err;
  }
  for (const char* task : {"arc_easy", "lambada_openai", "wikitext", "winogrande", "piqa"})
    for (const char* other : {"b5", "b32"}) {
      const std::string name = std::string("/samples_") + task + ".jsonl";
      const ProgramResult same = eval({"--compare", "b1" + name, other + name});
      EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
      EXPECT_NE(same.out.find("0 differences"), std::string::npos) << same.out;
    }
  const nlohmann::json config = results("b5").at("config");
  EXPECT_EQ(config.at("max_length"), 90);
  EXPECT_EQ(config.at("prefix_token"), 10);  // a line's end, where a tokenizer of bytes begins
  EXPECT_EQ(config.at("batch_size"), 5);
  EXPECT_GT(config.at("truncated_requests"), 0);
}

TEST_F(LanguageTasks, AModelWrites) {
  ASSERT_EQ(space_.train({"--steps", "4"}).exit_code, 0);
  const ProgramResult cut =
      tasks("based_fda,based_triviaqa", "out", {"--context-length", "80", "--output", "cut"});
  if (cut.exit_code != 5) {
    EXPECT_EQ(cut.exit_code, 0) << cut.err;
    EXPECT_EQ(results("cut").at("config").at("context_length"), 80);
  }
  const ProgramResult run = tasks("swde,niah_single_1", "out", {"--limit", "2", "--compat", "0.4.8"});
  if (run.exit_code == 5 && run.err.find("ICU") != std::string::npos) GTEST_SKIP() << run.err;
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const nlohmann::json json = results("runs/eval-lm-out");
  EXPECT_EQ(json.at("n-samples").at("swde").at("effective"), 2);
  EXPECT_EQ(json.at("versions").at("swde"), 0);
  EXPECT_TRUE(json.at("results").at("niah_single_1").at("string_match_all,none").is_number());
}

TEST_F(LanguageTasks, DifferencesEndWithAnError) {
  const std::string line = R"({"doc_id": 0, "target": "a", "arguments": [["b", " c"]]})";
  spill(space_.dir / "one.jsonl", line);
  spill(space_.dir / "two.jsonl", R"({"doc_id": 0, "target": "a", "arguments": [["b", " d"]]})");
  EXPECT_EQ(eval({"--compare", "one.jsonl", "one.jsonl"}).exit_code, 0);
  const ProgramResult result = eval({"--compare", "one.jsonl", "two.jsonl"});
  expect_error(result, 3, {"two.jsonl differs from one.jsonl in 1 places"});
  EXPECT_NE(result.out.find("document 0: request 0, argument 1: \" c\" | \" d\""), std::string::npos)
      << result.out;
}

TEST_F(LanguageTasks, WhatIsRefused) {
  expect_error(tasks("arc_esy", "dummy"), 2, {"no task \"arc_esy\" (did you mean arc_easy?)"});
  expect_error(tasks("piqa,piqa", "dummy"), 2, {"piqa is named twice"});
  expect_error(tasks("piqa", "nowhere"), 3, {"nowhere"});
  expect_error(tasks("piqa", "dummy", {"--compat", "0.3"}), 2,
               {"--compat lm-eval-0.3: unknown", "lm-eval-0.4.2"});
  expect_error(tasks("piqa", "dummy", {"--num-fewshot", "5"}), 2, {"--num-fewshot 5"});
  expect_error(tasks("piqa", "dummy", {"--checkpoint", "x"}), 2, {"--model and --checkpoint"});
  expect_error(tasks("piqa", "dummy", {"--prefix", "x"}), 2,
               {"--prefix x: expected auto, bos, eos or the id"});
  expect_error(tasks("piqa", "dummy", {"--context-length", "512"}), 2,
               {"dummy has no tokenizer to count with"});
  expect_error(tasks("piqa", "dummy", {"--quick"}), 2, {"--quick, --config and --set belong to suites"});
  expect_error(eval({"--suite", "mqar", "--model", "x"}), 2, {"--model and --data belong to language tasks"});
  expect_error(eval({"--tasks", "piqa", "--data", fixtures}), 2, {"--model is missing"});
  expect_error(eval({"--tasks", "piqa", "--model", "dummy"}), 2, {"--data is missing"});
  expect_error(eval({"--tasks", "piqa", "--model", "dummy", "--data", "none"}), 2,
               {"--data none: is no folder"});
  spill(space_.dir / "piqa.jsonl", "{\"goal\": \"a\", \"sol1\": \"b\", \"sol2\": \"c\", \"label\": 2}\n");
  expect_error(eval({"--tasks", "piqa", "--model", "dummy", "--data", "."}), 3,
               {"./piqa.jsonl:1: field \"label\": expected a number from 0 to 1, found 2"});
  expect_error(eval({"--suite", "lm", "--model", "dummy", "--data", "."}), 3,
               {"wikitext.jsonl: no such file", "data/README.md"});
}

}  // namespace
}  // namespace kata
