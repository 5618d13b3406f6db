// kataeval through its command line: what it prints and writes, how it stops, and every way to hand it
// something wrong.
#include <sys/stat.h>
#include <unistd.h>

#include "apps/workspace.h"

namespace kata {
namespace {

using test::expect_error;
using test::Program;
using test::ProgramOptions;
using test::ProgramResult;
using test::slurp;
using test::spill;

// A folder with a suite that trains in a moment, found by its name.
class Suite {
 public:
  Suite() {
    std::filesystem::create_directories(dir / "configs/suites");
    spill(dir / "configs/suites/tiny.yaml", config);
  }

  std::vector<std::string> argv(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), std::string(KATA_BIN_DIR) + "/kataeval");
    return arguments;
  }
  ProgramOptions in_folder(ProgramOptions options = {}) const {
    options.folder = dir.path();
    options.environment.insert({"OMP_NUM_THREADS", "1"});
    return options;
  }
  ProgramResult run(std::vector<std::string> arguments, ProgramOptions options = {}) const {
    return Program(argv(std::move(arguments)), in_folder(std::move(options))).wait();
  }
  ProgramResult tiny(std::vector<std::string> more = {}, ProgramOptions options = {}) const {
    more.insert(more.begin(), {"--suite", "tiny"});
    return run(std::move(more), std::move(options));
  }
  nlohmann::json results(const std::string& path = "runs/eval-tiny/results.json") const {
    return nlohmann::json::parse(slurp(dir / path));
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(dir / name); }
  // The folder of a trained model.
  std::string cell(const std::string& model, const std::string& output = "runs/eval-tiny") const {
    for (const auto& entry : std::filesystem::directory_iterator(dir / (output + "/cells")))
      if (entry.path().filename().string().starts_with(model)) return entry.path().string();
    return "";
  }

  test::TempDir dir;
  static constexpr const char* config = R"(
suite: tiny
model: {hidden: 8, layers: 1, heads: 1, mlp: 8}
models:
  - {name: softmax, mixer: {preset: softmax}}
  - {name: kata_m1, mixer: {preset: kata_m1}}
task: {vocab: 48, segments: [{length: 16, pairs: 2, examples: 20}]}
evaluation: [{length: 16, pairs: 2, examples: 12}, {length: 32, pairs: 4, examples: 5}]
train: {steps: 4, batch: 8}
quick: {train: {steps: 2}}
)";
};

TEST(KataEval, PrintsATableAndWritesResultsAndReport) {
  const Suite s;
  const ProgramResult result = s.tiny({"--json", "deep/er/x.json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* text : {"model ", "16x2*", " 32x4 ", "state@32", "parameters", "\nsoftmax ", "\nkata_m1 "})
    EXPECT_NE(result.out.find(text), std::string::npos) << text << " is not in " << result.out;
  EXPECT_NE(result.err.find("estimate: about "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("--quick"), std::string::npos) << result.err;
  const nlohmann::json json = s.results();
  EXPECT_EQ(s.results("deep/er/x.json"), json);
  EXPECT_TRUE(json.at("complete"));
  EXPECT_EQ(json.at("results").size(), 2u);
  EXPECT_EQ(json.at("results").at("kata_m1").at("32x4").at("examples"), 5);
  EXPECT_EQ(json.at("config").at("train").at("steps"), 4);
  EXPECT_TRUE(s.exists("runs/eval-tiny/report.html"));

  // The stored suite is complete: it gives the same results.
  std::filesystem::copy_file(s.dir / "runs/eval-tiny/suite.yaml", s.dir / "stored.yaml");
  ASSERT_EQ(s.tiny({"--config", "stored.yaml", "--output", "again"}).exit_code, 0);
  EXPECT_EQ(s.results("again/results.json").at("results"), json.at("results"));
}

TEST(KataEval, TheOverwriteSuite) {
  const Suite s;
  spill(s.dir / "configs/suites/overwrite.yaml", R"(
suite: overwrite
model: {hidden: 8, layers: 1, heads: 1, mlp: 8}
models:
  - {name: softmax, mixer: {preset: softmax}}
  - {name: kata_m1, mixer: {preset: kata_m1}}
task: {name: overwrite, vocab: 48, segments: [{length: 16, pairs: 2, rewrites: 2, rewritten: 1, examples: 20}]}
evaluation:
  - {length: 16, pairs: 2, rewrites: 2, rewritten: 1, examples: 12}
  - {length: 32, pairs: 4, rewrites: 1, examples: 5}
train: {steps: 4, batch: 8}
)");
  const ProgramResult result = s.run({"--suite", "overwrite"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* text : {"latest accuracy/stale rate", "16x2r2u1*", " 32x4r1 ",
                           "r1 0.500/0.500, r2 0.333/0.667", "state@32", "parameters", "\nkata_m1 "})
    EXPECT_NE(result.out.find(text), std::string::npos) << text << " is not in " << result.out;
  const nlohmann::json json = s.results("runs/eval-overwrite/results.json");
  const nlohmann::json& cell = json.at("results").at("kata_m1").at("16x2r2u1");
  for (const char* rate : {"latest_acc", "stale_rate", "stale_prev_rate", "first_rate", "other_key_rate",
                           "junk_rate", "untouched_acc", "untouched_other_rate", "untouched_junk_rate"})
    EXPECT_TRUE(cell.at(rate).is_number()) << rate;
  EXPECT_NE(slurp(s.dir / "runs/eval-overwrite/report.html").find("Stale rate against length"),
            std::string::npos);

  // What was trained is kept, also for --checkpoint.
  const ProgramResult again = s.run({"--suite", "overwrite"});
  EXPECT_EQ(again.out, result.out);
  EXPECT_EQ(again.err.find("training"), std::string::npos) << again.err;
  const std::string folder = s.cell("kata_m1", "runs/eval-overwrite");
  ASSERT_EQ(s.run({"--suite", "overwrite", "--checkpoint", folder, "--output", "read"}).exit_code, 0);
  EXPECT_EQ(s.results("read/results.json").at("results").begin().value(), json.at("results").at("kata_m1"));
  expect_error(s.run({"--suite", "overwrite", "--set", "evaluation.1.rewrites=9"}), 2,
               {"evaluation.1.pairs", "40 bindings", "length 32"});
}

TEST(KataEval, ASecondRunTrainsNothing) {
  const Suite s;
  const ProgramResult first = s.tiny(), second = s.tiny();
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(second.out, first.out);
  EXPECT_EQ(second.err.find("training"), std::string::npos) << second.err;
  EXPECT_NE(second.err.find("kata_m1 lr 0.001: kept from before"), std::string::npos) << second.err;
}

TEST(KataEval, QuickHasItsOwnFolder) {
  const Suite s;
  const ProgramResult result = s.tiny({"--quick"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(s.results("runs/eval-tiny-quick/results.json").at("config").at("train").at("steps"), 2);
  EXPECT_FALSE(s.exists("runs/eval-tiny"));
  EXPECT_EQ(result.err.find("--quick"), std::string::npos) << result.err;
}

TEST(KataEval, InterruptedItKeepsWhatItHasAndGoesOn) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Suite s;
    const std::vector<std::string> arguments = {"--suite", "tiny", "--set", "train.steps=20000"};
    Program program(s.argv(arguments), s.in_folder());
    ASSERT_TRUE(program.wait_for("softmax lr 0.001  training"));
    program.signal(signal);
    const ProgramResult stopped = program.wait();
    EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
    EXPECT_NE(stopped.err.find("interrupted before the end"), std::string::npos) << stopped.err;
    EXPECT_FALSE(s.results().at("complete"));
    const ProgramResult next =
        s.run({"--suite", "tiny", "--set", "train.steps=20000", "--time-limit", "0.005"});
    EXPECT_EQ(next.exit_code, 0) << next.err;
    EXPECT_NE(next.err.find("softmax lr 0.001: goes on after step "), std::string::npos) << next.err;
    EXPECT_NE(next.err.find("the time limit was reached before the end"), std::string::npos) << next.err;
  }
}

TEST(KataEval, EvaluatesACheckpoint) {
  const Suite s;
  ASSERT_EQ(s.tiny().exit_code, 0);
  const nlohmann::json trained = s.results().at("results");
  for (const char* model : {"softmax", "kata_m1"}) {
    const std::string folder = s.cell(model), name = std::filesystem::path(folder).filename();
    const ProgramResult result = s.tiny({"--checkpoint", folder});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const nlohmann::json json = s.results("runs/eval-tiny-" + name + "/results.json");
    EXPECT_EQ(json.at("results").at(name), trained.at(model));
    EXPECT_EQ(json.at("checkpoint"), folder + "/checkpoints/step-00000004");
    EXPECT_NE(result.out.find("\n" + name + " "), std::string::npos) << result.out;
  }
  const std::string step = s.cell("kata_m1") + "/checkpoints/step-00000004";
  EXPECT_EQ(s.tiny({"--checkpoint", step, "--output", "step"}).exit_code, 0);
  EXPECT_TRUE(s.exists("step/report.html"));
}

TEST(KataEval, WrongCheckpoints) {
  const Suite s;
  ASSERT_EQ(s.tiny().exit_code, 0);
  const std::string folder = s.cell("kata_m1"),
                    weights = folder + "/checkpoints/step-00000004/model.safetensors";
  expect_error(s.tiny({"--checkpoint", "nowhere"}), 3, {"nowhere", "No such file"});
  expect_error(s.tiny({"--checkpoint", "configs"}), 3, {"configs", "holds no checkpoint"});
  expect_error(s.tiny({"--checkpoint", folder, "--set", "task.vocab=50"}), 2,
               {"vocabulary of 48", "smaller than the 50"});
  const std::string good = slurp(weights);
  std::string bad = good;
  bad[bad.size() - 7] = static_cast<char>(bad[bad.size() - 7] ^ 1);
  spill(weights, bad);
  const ProgramResult damaged = s.tiny({"--checkpoint", folder});
  expect_error(damaged, 3, {folder});
  EXPECT_NE(damaged.err.find("model.safetensors"), std::string::npos) << damaged.err;
  expect_error(s.tiny({"--checkpoint", folder + "/checkpoints/step-00000004"}), 3, {weights, "CRC-32"});
  spill(weights, good.substr(0, good.size() / 2));
  expect_error(s.tiny({"--checkpoint", folder + "/checkpoints/step-00000004"}), 3, {weights, "bytes"});
  for (const auto& entry : std::filesystem::directory_iterator(s.dir / "runs"))
    EXPECT_EQ(entry.path().filename(), "eval-tiny") << "a checkpoint that is refused leaves no folder";
}

TEST(KataEval, WrongSuites) {
  const Suite s;
  expect_error(s.run({}), 2, {"--suite is missing", "kataeval --suite mqar --quick"});
  expect_error(s.run({"--suite", "tinny"}), 2, {"--suite tinny", "did you mean tiny?", "mqar", "overwrite"});
  expect_error(s.run({"--suite", "../suites/tiny"}), 2, {"no such suite"});
  expect_error(s.tiny({"--config", "nowhere.yaml"}), 2, {"nowhere.yaml", "No such file"});
  expect_error(s.run({"--suite", "mqar", "--config", "configs/suites/tiny.yaml"}), 2,
               {"--suite mqar", "configs/suites/tiny.yaml is the suite tiny"});
  expect_error(s.tiny({"--set", "train.stepps=3"}), 2, {"--set train.stepps=3", "did you mean 'steps'?"});
  expect_error(s.tiny({"--set", "train.steps"}), 2, {"--set train.steps"});
  expect_error(s.tiny({"--set", "train.steps=many"}), 2, {"train.steps", "many"});
  expect_error(s.tiny({"--set", "evaluation=[{length: 16, pairs: 9, examples: 1}]"}), 2,
               {"evaluation.0.pairs", "at most 4"});
  expect_error(s.tiny({"--set", "train.learning_rates=[1e-3, 1e-3]"}), 2,
               {"learning_rates", "0.001", "twice"});
  spill(s.dir / "no_quick.yaml",
        std::string(Suite::config).substr(0, std::string(Suite::config).find("quick:")));
  expect_error(s.tiny({"--quick", "--config", "no_quick.yaml"}), 2, {"no_quick.yaml", "--quick"});
  spill(s.dir / "broken.yaml", "suite: [");
  expect_error(s.tiny({"--config", "broken.yaml"}), 2, {"broken.yaml:"});
  EXPECT_FALSE(s.exists("runs"));
}

TEST(KataEval, WrongArguments) {
  const Suite s;
  expect_error(s.tiny({"--device", "cuda:99"}), 5, {"--device cuda:99"});
  expect_error(s.tiny({"--device", "gpu"}), 2, {"--device gpu", "auto, cpu"});
  expect_error(s.tiny({"--log-level", "loud"}), 2, {"loud"});
  expect_error(s.tiny({"--quik"}), 2, {"--quik", "--help"});
  for (const char* limit : {"0", "-1", "soon", "nan"})
    expect_error(s.tiny({"--time-limit", limit}), 2, {"--time-limit"});
  for (const char* size : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    expect_error(s.tiny({}, {.environment = {{size, "2"}}}), 5, {"2 processes", size});
  EXPECT_FALSE(s.exists("runs"));
  EXPECT_EQ(s.tiny({}, {.environment = {{"OMPI_COMM_WORLD_SIZE", "1"}}}).exit_code, 0);
}

TEST(KataEval, WrongPlacesForResults) {
  const Suite s;
  spill(s.dir / "file", "x");
  expect_error(s.tiny({"--output", "file/below"}), 3, {"file/below", "Not a directory"});
  expect_error(s.tiny({"--output", "file"}), 3, {"file"});
  expect_error(s.tiny({"--json", "file/below.json"}), 3, {"file", "Not a directory"});
  expect_error(s.tiny({"--json", "configs"}), 2, {"--json configs", "folder"});
  EXPECT_EQ(slurp(s.dir / "file"), "x");
  if (::geteuid() != 0) GTEST_SKIP() << "only root may become another user";
  std::filesystem::create_directory(s.dir / "closed");
  ::chmod(s.dir.path().c_str(), 0755);
  expect_error(s.tiny({"--output", "closed/out"}, {.user = 65534}), 3, {"closed/out", "Permission denied"});
}

// A disk that fills up at any point: one line, code 3, and what was there is not harmed.
TEST(KataEval, AFullDisk) {
  const Suite s;
  for (const uint64_t limit : {100, 1500, 3000, 6000})
    expect_error(s.tiny({"--output", "out"}, {.file_size_limit = limit}), 3, {"out/", "limit"});
  const ProgramResult result = s.tiny({"--output", "out"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string before = slurp(s.dir / "out/results.json");
  expect_error(s.tiny({"--output", "out"}, {.file_size_limit = 3000}), 3, {"out/results.json"});
  EXPECT_EQ(slurp(s.dir / "out/results.json"), before);
}

TEST(KataEval, AModelThatCannotBeTrainedIsCodeFour) {
  const Suite s;
  const ProgramResult result = s.tiny({"--set", "train.learning_rates=[1e30]", "--set", "train.steps=40"});
  expect_error(result, 4, {"softmax", "diverged at step", "learning_rates"});
  EXPECT_NE(result.out.find("failed"), std::string::npos) << result.out;
  EXPECT_TRUE(s.results().at("results").at("softmax").empty());
  EXPECT_TRUE(s.exists("runs/eval-tiny/report.html"));
}

TEST(KataEval, HelpAndVersion) {
  const Suite s;
  const ProgramResult help = s.run({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.out.find("Example"), std::string::npos);
  EXPECT_NE(help.out.find("kataeval --suite mqar --quick"), std::string::npos);
  EXPECT_NE(s.run({"--version"}).out.find("kata "), std::string::npos);
}

}  // namespace
}  // namespace kata
