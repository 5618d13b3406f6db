// kataeval --suite capacity through its command line.
#include "apps/workspace.h"

namespace kata {
namespace {

using test::expect_error;
using test::Program;
using test::ProgramOptions;
using test::ProgramResult;
using test::slurp;
using test::spill;

class Suite {
 public:
  std::vector<std::string> argv(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), std::string(KATA_BIN_DIR) + "/kataeval");
    return arguments;
  }
  ProgramOptions in_folder() const {
    ProgramOptions options;
    options.folder = dir.path();
    options.environment.insert({"OMP_NUM_THREADS", "1"});
    return options;
  }
  ProgramResult run(std::vector<std::string> arguments) const {
    return Program(argv(std::move(arguments)), in_folder()).wait();
  }
  // The suite that ships, made small.
  ProgramResult small(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"--suite", "capacity", "--quick"};
    for (const char* change : {"widths=[4, 8]", "power.pairs=3000", "welch.steps=20",
                               "packing.candidates=100", "wall.candidates=100", "wall.steps=20",
                               "wall.restarts=1", "supports.candidates=50", "certificates.draws=8"})
      arguments.insert(arguments.end(), {"--set", change});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(dir / name); }
  nlohmann::json json(const std::string& name) const { return nlohmann::json::parse(slurp(dir / name)); }

  test::TempDir dir;
};

TEST(KataEvalCapacity, PrintsTablesAndWritesFiles) {
  const Suite s;
  const ProgramResult result = s.small({"--output", "out", "--json", "deep/er/x.json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* text :
       {"# suite capacity --quick, commit ", "\n# Interference", "\n# Largest coherence", "\n# Keys kept",
        "\n# Keys with every nu", "\n# Keys without", "\n# What certifies"})
    EXPECT_NE(result.out.find(text), std::string::npos) << text << " is not in " << result.out;
  EXPECT_NE(result.err.find("wrote out/results.json and out/report.html"), std::string::npos) << result.err;
  const nlohmann::json json = s.json("out/results.json");
  EXPECT_EQ(json, s.json("deep/er/x.json"));
  EXPECT_TRUE(json.at("complete"));
  EXPECT_TRUE(json.at("quick"));
  for (const nlohmann::json& row : json.at("results"))
    if (row.at("part") == "wall" && row.at("map") == "lorentz") {
      EXPECT_TRUE(row.at("holds")) << row;
    }
  EXPECT_NE(slurp(s.dir / "out/report.html").find("<svg"), std::string::npos);

  // The stored suite is complete: it gives the same results.
  const ProgramResult again =
      s.run({"--suite", "capacity", "--config", "out/suite.yaml", "--output", "again"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(s.json("again/results.json").at("results"), json.at("results"));
}

TEST(KataEvalCapacity, ItsFolderHasItsName) {
  const Suite s;
  ASSERT_EQ(s.small().exit_code, 0);
  EXPECT_TRUE(s.exists("runs/eval-capacity-quick/results.json"));
  EXPECT_TRUE(s.exists("runs/eval-capacity-quick/suite.yaml"));
}

TEST(KataEvalCapacity, EndsBetweenMeasurements) {
  const Suite s;
  const std::vector<std::string> endless = {"--suite", "capacity", "--output",
                                            "out",     "--set",    "power.pairs=1000000000"};
  Program program(s.argv(endless), s.in_folder());
  ASSERT_TRUE(program.wait_for("1 of "));
  program.signal(SIGINT);
  const ProgramResult stopped = program.wait();
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_NE(stopped.err.find("interrupted after 0 of "), std::string::npos) << stopped.err;
  EXPECT_FALSE(s.json("out/results.json").at("complete"));

  std::vector<std::string> limited = endless;
  limited.insert(limited.end(), {"--time-limit", "0.002"});
  const ProgramResult late = s.run(limited);
  EXPECT_EQ(late.exit_code, 0) << late.err;
  EXPECT_NE(late.err.find("the time limit was reached after "), std::string::npos) << late.err;
}

TEST(KataEvalCapacity, WrongArgumentsAndConfigs) {
  const Suite s;
  expect_error(s.small({"--checkpoint", "runs/x"}), 2, {"--checkpoint runs/x", "capacity", "leave it out"});
  expect_error(s.small({"--set", "powr.pairs=3"}), 2, {"--set powr.pairs=3", "did you mean 'power'?"});
  spill(s.dir / "c.yaml", "suite: capacity\nmaps:\n  - {map: psd, groups: 3}\nwidths: [8]\n");
  expect_error(s.run({"--suite", "capacity", "--config", "c.yaml"}), 2,
               {"c.yaml:3:5", "maps.0", "psd needs widths that 3 divides"});
  expect_error(s.run({"--suite", "capacity", "--quick", "--config", "c.yaml"}), 2, {"c.yaml", "--quick"});
  expect_error(s.run({"--suite", "mqar", "--config", "c.yaml"}), 2,
               {"--suite mqar", "c.yaml is the suite capacity"});
  spill(s.dir / "m.yaml", "suite: capacity\nmaps: [{map: psdd}]\n");
  expect_error(s.run({"--suite", "capacity", "--config", "m.yaml"}), 2,
               {"m.yaml:2:14", "maps.0.map", "did you mean 'psd'?"});
  spill(s.dir / "file", "x");
  expect_error(s.small({"--output", "file"}), 3, {"file"});
  expect_error(s.small({"--json", "."}), 2, {"--json .", "folder"});
  EXPECT_EQ(slurp(s.dir / "file"), "x");
}

}  // namespace
}  // namespace kata
