// Suites as a whole: what is trained, what is kept, what is done anew.
#include "eval/suite.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/safetensors.h"
#include "eval/tiny_suite.h"
#include "support/errors.h"
#include "tasks/sources.h"
#include "train/learner.h"
#include "train/schedule.h"

namespace kata {
namespace {

using test::file_bytes;
using test::TinySuite;
using test::write_bytes;

// Scores of all models and rates as text: two runs that agree, agree to the bit.
std::string scores(const SuiteResults& results) {
  const auto json = to_json(results);
  std::string text;
  for (const auto& [name, model] : json.at("models").items())
    for (const auto& rate : model.at("rates"))
      text += name + rate.at("scores").dump() + rate.at("failed").dump() + "\n";
  return text;
}

void flip_byte(const std::string& path, size_t at) {
  std::string bytes = file_bytes(path);
  ASSERT_LT(at, bytes.size());
  bytes[at] = static_cast<char>(bytes[at] ^ 4);
  write_bytes(path, bytes);
}

TEST(Suite, TrainsAndReadsEveryModel) {
  TinySuite tiny;
  const SuiteResults results = tiny.run();
  EXPECT_TRUE(results.complete());
  ASSERT_EQ(results.models.size(), 2u);
  EXPECT_EQ(results.models[0].name, "softmax");
  for (const ModelResult& model : results.models) {
    ASSERT_EQ(model.rates.size(), 1u);
    const RateResult& rate = model.rates[0];
    EXPECT_GT(rate.train_seconds.value(), 0);
    EXPECT_GT(rate.train_loss.value(), 1);
    ASSERT_EQ(rate.scores.size(), 2u);
    EXPECT_EQ(rate.scores[0]->examples, 30);
    EXPECT_EQ(rate.scores[1]->examples, 10);
    EXPECT_GT(rate.scores[1]->loss, 1);
  }
  EXPECT_EQ(results.models[0].state_entries, (std::vector<int64_t>{2 * 2 * 8 * 16, 2 * 2 * 8 * 32}));
  EXPECT_EQ(results.models[1].state_entries, (std::vector<int64_t>{2 * 36 * 9, 2 * 36 * 9}));
  EXPECT_TRUE(tiny.says("estimate: about ")) << tiny.printed;
  EXPECT_TRUE(tiny.says("2 trainings (18 steps in all) and 4 readings; --quick")) << tiny.printed;
  EXPECT_TRUE(tiny.says("ETA")) << tiny.printed;
  EXPECT_TRUE(tiny.says("kata_m1 lr 0.01: trained in")) << tiny.printed;
}

// The steps of a suite are those of katatrain: same batches, rates and updates.
TEST(Suite, TrainsLikeTheTrainer) {
  TinySuite tiny;
  tiny.run();
  const RunConfig run = run_config(tiny.suite, tiny.suite.models[1], 1e-2);
  Learner learner(run.model, run.train, run.optimizer, train_shapes(run), {});
  const auto source = make_train_source(run);
  Batch batch;
  for (int64_t step = 0; step < 9; ++step) {
    source->fill(step, batch);
    learner.gradients(batch);
    learner.update(learning_rate(run.optimizer, 9, step + 1), learner.gradient_norm());
  }
  write_safetensors(tiny.dir / "expected.safetensors", learner.weights());
  EXPECT_EQ(file_bytes(tiny.models().at(0)), file_bytes(tiny.dir / "expected.safetensors"));
}

TEST(Suite, ASecondRunTrainsNothing) {
  TinySuite tiny;
  const SuiteResults first = tiny.run();
  const auto times = tiny.training_times();
  ASSERT_EQ(times.size(), 2u);
  const SuiteResults second = tiny.run();
  EXPECT_EQ(tiny.training_times(), times);
  EXPECT_EQ(scores(second), scores(first));
  EXPECT_TRUE(tiny.says("kata_m1 lr 0.01: kept from before: accuracy 16x2 ")) << tiny.printed;
  EXPECT_FALSE(tiny.says("training")) << tiny.printed;
  EXPECT_FALSE(tiny.says("estimate")) << tiny.printed;
  EXPECT_FALSE(tiny.says("reading")) << tiny.printed;
}

TEST(Suite, AnotherGridIsReadWithoutTraining) {
  TinySuite tiny;
  tiny.run();
  const auto times = tiny.training_times();
  tiny.set({"evaluation=[{length: 16, pairs: 2, examples: 30}, {length: 20, pairs: 2, examples: 12}]"});
  const SuiteResults other = tiny.run();
  EXPECT_EQ(tiny.training_times(), times);
  EXPECT_TRUE(other.complete());
  EXPECT_EQ(other.models[1].rates[0].scores[1]->examples, 12);
  EXPECT_TRUE(tiny.says("0 trainings (0 steps in all) and 2 readings")) << tiny.printed;
  const auto record = nlohmann::json::parse(file_bytes(tiny.files("cell.json").at(0)));
  EXPECT_EQ(record.at("scores").size(), 3u) << "one was there, it is not read twice";
  // The first grid's scores are still there.
  tiny.set({});
  tiny.run();
  EXPECT_FALSE(tiny.says("estimate")) << tiny.printed;
  // The seed of a cell follows from its place: elsewhere it has other examples.
  tiny.set({"evaluation=[{length: 32, pairs: 4, examples: 10}, {length: 16, pairs: 2, examples: 30}]"});
  tiny.run();
  EXPECT_TRUE(tiny.says("0 trainings (0 steps in all) and 4 readings")) << tiny.printed;
}

TEST(Suite, WhatChangesTheWeightsIsTrainedAnew) {
  for (const char* change : {"train.steps=8", "train.batch=7", "train.seed=4", "train.learning_rates=[2e-2]",
                             "model.mlp=10", "optimizer.weight_decay=0.2", "task.seed=5", "train.clip=0.01",
                             "task.segments.0.examples=21", "models.0.mixer.preset=linear_orthant"}) {
    TinySuite tiny({"models=[{name: m, mixer: {preset: kata_m1}}]", "train.steps=2"});
    tiny.run();
    tiny.set({"models=[{name: m, mixer: {preset: kata_m1}}]", "train.steps=2", change});
    tiny.run();
    EXPECT_EQ(tiny.models().size(), 2u) << change;
  }
  TinySuite tiny({"models=[{name: m, mixer: {preset: kata_m1}}]", "train.steps=2"});
  tiny.run();
  tiny.set({"models=[{name: m, mixer: {preset: kata_m1}}]", "train.steps=2", "train.threads=2"});
  tiny.run();
  EXPECT_EQ(tiny.models().size(), 1u) << "threads change no weight";
}

// Stopped at every possible moment, and gone on with until it is done.
TEST(Suite, AStoppedRunGoesOnToTheSameBits) {
  TinySuite whole;
  const SuiteResults expected = whole.run();
  TinySuite parts;
  SuiteResults results;
  int runs = 0;
  do {
    // Measuring asks about ten times, a step asks twice: each run gets a few steps further.
    int asked = 0;
    results = parts.run([&] { return ++asked > 18; });
    ASSERT_LT(++runs, 40);
  } while (!results.complete());
  EXPECT_GT(runs, 3);
  EXPECT_EQ(scores(results), scores(expected));
  ASSERT_EQ(parts.models().size(), 2u) << "of a training only the last checkpoint is kept";
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(file_bytes(parts.models()[i]), file_bytes(whole.models()[i]));
}

TEST(Suite, WhatIsFinishedIsShownWhenItStops) {
  TinySuite tiny;
  const SuiteResults results = tiny.run([&] {
    return std::filesystem::exists(tiny.output()) && tiny.files("cell.json").size() == 1 &&
           file_bytes(tiny.files("cell.json")[0]).find("\"length\": 32") != std::string::npos;
  });
  EXPECT_FALSE(results.complete());
  EXPECT_EQ(to_json(results).at("complete"), false);
  ASSERT_EQ(results.models.size(), 1u);
  EXPECT_EQ(results.models[0].name, "softmax");
}

TEST(Suite, ATimeLimitStopsIt) {
  TinySuite tiny;
  Monitor monitor(1e-12, [] { return false; });
  ::testing::internal::CaptureStderr();
  const SuiteResults results = run_suite(tiny.suite, false, tiny.output(), monitor);
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(monitor.stop(), Stop::out_of_time);
  EXPECT_TRUE(results.models.empty());
}

TEST(Suite, DamagedWeightsAreTrainedAnew) {
  TinySuite tiny;
  const SuiteResults first = tiny.run();
  const std::string path = tiny.models().at(0), good = file_bytes(path);
  for (const size_t at : {size_t{3}, good.size() / 2, good.size() - 1}) {
    flip_byte(path, at);
    const SuiteResults again = tiny.run();
    EXPECT_TRUE(tiny.says("[warn")) << tiny.printed;
    EXPECT_TRUE(tiny.says("model.safetensors")) << tiny.printed;
    EXPECT_TRUE(tiny.says("kata_m1 lr 0.01 is trained anew")) << tiny.printed;
    EXPECT_TRUE(tiny.says("1 trainings")) << tiny.printed;
    EXPECT_EQ(file_bytes(path), good);
    EXPECT_EQ(scores(again), scores(first));
  }
  write_bytes(path, good.substr(0, good.size() - 5));
  tiny.run();
  EXPECT_TRUE(tiny.says("is trained anew")) << tiny.printed;
  std::filesystem::remove(path);
  tiny.run();
  EXPECT_TRUE(tiny.says("is trained anew")) << tiny.printed;
  EXPECT_EQ(file_bytes(path), good);
}

TEST(Suite, DamagedScoresAreReadAnew) {
  TinySuite tiny;
  const SuiteResults first = tiny.run();
  const auto times = tiny.training_times();
  const std::string path = tiny.files("cell.json").at(0), good = file_bytes(path);
  const size_t accuracy = good.find("\"accuracy\": ") + std::string("\"accuracy\": ").size();
  std::vector<std::string> damaged = {"",        "{", "[]", "{}", "null", good.substr(0, good.size() / 2),
                                      good + "x"};
  damaged.push_back(good);
  damaged.back()[accuracy] = damaged.back()[accuracy] == '0' ? '1' : '0';  // a better score by hand
  for (const std::string& text : damaged) {
    write_bytes(path, text);
    const SuiteResults again = tiny.run();
    EXPECT_TRUE(tiny.says("cell.json: ")) << tiny.printed;
    EXPECT_TRUE(tiny.says("its scores are read anew")) << tiny.printed;
    EXPECT_TRUE(tiny.says("0 trainings (0 steps in all) and 2 readings")) << tiny.printed;
    EXPECT_EQ(scores(again), scores(first));
    EXPECT_EQ(file_bytes(path), good);
  }
  EXPECT_EQ(tiny.training_times(), times);
}

TEST(Suite, ACheckpointOfAnotherRunIsNotUsed) {
  TinySuite tiny;
  tiny.run();
  const std::vector<std::string> models = tiny.models();
  namespace fs = std::filesystem;
  const fs::path kata = fs::path(models.at(0)).parent_path(), softmax = fs::path(models.at(1)).parent_path();
  const std::string good = file_bytes(models.at(0));
  fs::remove_all(kata);
  fs::copy(softmax, kata, fs::copy_options::recursive);
  tiny.run();
  EXPECT_TRUE(tiny.says("belongs to another training run; kata_m1 lr 0.01 is trained anew")) << tiny.printed;
  EXPECT_EQ(file_bytes(models.at(0)), good);
}

TEST(Suite, TheBestRateIsReportedAndAllAreKept) {
  TinySuite tiny({"train.learning_rates=[1e-6, 2e-2, 1e30]", "train.steps=30"});
  const SuiteResults results = tiny.run();
  EXPECT_TRUE(results.complete());
  for (const ModelResult& model : results.models) {
    ASSERT_EQ(model.rates.size(), 3u);
    EXPECT_NE(model.rates[2].trouble.find("diverged"), std::string::npos) << model.rates[2].trouble;
    ASSERT_NE(model.best(), nullptr);
    const double first = model.rates[0].mean_accuracy(), second = model.rates[1].mean_accuracy();
    EXPECT_EQ(model.best()->learning_rate, second > first ? 2e-2 : 1e-6);
  }
  // That it failed is kept as well.
  const SuiteResults again = tiny.run();
  EXPECT_EQ(scores(again), scores(results));
  EXPECT_FALSE(tiny.says("estimate")) << tiny.printed;
}

TEST(Suite, WritesStrictJsonAndAReport) {
  TinySuite tiny({"models=[{name: 'a<b>&\"c\"', mixer: {preset: kata_m1}}]"});
  SuiteResults results = tiny.run();
  results.models[0].rates[0].train_loss = std::nan("");
  make_directories(tiny.output());
  write_results(results, tiny.output(), tiny.dir / "extra.json");
  const std::string text = file_bytes(tiny.output() + "/results.json");
  EXPECT_EQ(file_bytes(tiny.dir / "extra.json"), text);
  EXPECT_EQ(text.find("nan"), std::string::npos);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json.at("results").at("a<b>&\"c\"").at("16x2").at("examples"), 30);
  EXPECT_EQ(json.at("complete"), true);
  EXPECT_EQ(json.at("config").at("task").at("segments").at(1).at("length"), 24);
  EXPECT_EQ(json.at("config").at("models").at(0).at("mixer").at(1).at("map"), "psd");
  EXPECT_EQ(json.at("config").at("optimizer").at("betas").at(1), 0.95);
  EXPECT_TRUE(json.at("models").at("a<b>&\"c\"").at("rates").at(0).at("train_loss").is_null());
  EXPECT_EQ(json.at("grid").at(0).at("in_distribution"), true);
  EXPECT_EQ(json.at("grid").at(1).at("in_distribution"), false);
  for (const char* key : {"commit", "date", "suite"}) EXPECT_TRUE(json.at(key).is_string()) << key;

  const std::string report = file_bytes(tiny.output() + "/report.html");
  EXPECT_NE(report.find("<td>a&lt;b&gt;&amp;&quot;c&quot;</td>"), std::string::npos);
  EXPECT_EQ(report.find("a<b>"), std::string::npos);
  EXPECT_NE(report.find("</svg>"), std::string::npos);
  EXPECT_NE(report.find("pairs: 4"), std::string::npos) << "the config";
  for (const char* outside : {"http://", "https://", "src="}) {
    size_t found = 0;
    for (size_t at = 0; (at = report.find(outside, at)) != std::string::npos; ++at)
      found += report.compare(at, 26, "http://www.w3.org/2000/svg") != 0;
    EXPECT_EQ(found, 0u) << "the report is one file: " << outside;
  }
}

// The same life with the other task: trained, read, kept, read again, reported.
TEST(OverwriteSuite, FromTrainingToReport) {
  TinySuite tiny(test::tiny_overwrite);
  const SuiteResults results = tiny.run();
  ASSERT_TRUE(results.complete());
  EXPECT_TRUE(tiny.says("kata_m1 lr 0.01: trained in")) << tiny.printed;
  EXPECT_TRUE(tiny.says("latest accuracy 16x2r1u1 0.")) << tiny.printed;
  const auto times = tiny.training_times();
  EXPECT_EQ(scores(tiny.run()), scores(results)) << "what was kept is what was read";
  EXPECT_TRUE(tiny.says("kata_m1 lr 0.01: kept from before: latest accuracy 16x2r1u1 ")) << tiny.printed;
  EXPECT_EQ(tiny.training_times(), times);

  const auto json = to_json(results);
  EXPECT_EQ(json.at("grid").at(0).at("name"), "16x2r1u1");
  EXPECT_EQ(json.at("grid").at(0).at("in_distribution"), true);
  EXPECT_EQ(json.at("grid").at(1).at("name"), "32x2r2");
  EXPECT_EQ(json.at("grid").at(1).at("rewritten"), 2);
  EXPECT_EQ(json.at("grid").at(1).at("layout"), "block");
  EXPECT_EQ(json.at("grid").at(1).at("in_distribution"), false);
  EXPECT_EQ(json.at("config").at("task").at("segments").at(1).at("rewritten"), 2) << "resolved";
  for (const auto& [name, cells] : json.at("results").items()) {
    for (const auto& [cell, score] : cells.items()) {
      const double sum = score.at("latest_acc").get<double>() + score.at("stale_rate").get<double>() +
                         score.at("other_key_rate").get<double>() + score.at("junk_rate").get<double>();
      EXPECT_NEAR(sum, 1, 1e-12) << name << " " << cell;
    }
    EXPECT_TRUE(cells.at("16x2r1u1").contains("untouched_acc"));
    EXPECT_FALSE(cells.at("32x2r2").contains("untouched_acc")) << "all keys are rewritten";
    const auto& by_rewrites = json.at("models").at(name).at("by_rewrites");
    for (const auto& [rewrites, cell] : {std::pair{"1", "16x2r1u1"}, {"2", "32x2r2"}})
      EXPECT_EQ(by_rewrites.at(rewrites).at("stale_rate"), cells.at(cell).at("stale_rate"));
  }

  make_directories(tiny.output());
  write_results(results, tiny.output(), "");
  const std::string report = file_bytes(tiny.output() + "/report.html");
  for (const char* text :
       {"Latest accuracy against length", "Stale rate against length", "Stale rate against state",
        ">stale rate</text>", "2 r2", "rewritten: 1, layout: block"})
    EXPECT_NE(report.find(text), std::string::npos) << text;
}

TEST(OverwriteSuite, ANumberOfRewritesIsAnotherCell) {
  TinySuite tiny(test::tiny_overwrite);
  tiny.run();
  auto changes = test::tiny_overwrite;
  changes.back() =
      "evaluation=[{length: 16, pairs: 2, rewritten: 1, rewrites: 2, examples: 30}, "
      "{length: 32, pairs: 2, rewrites: 2, layout: interleaved, examples: 10}]";
  tiny.set(changes);
  const SuiteResults other = tiny.run();
  EXPECT_TRUE(tiny.says("0 trainings (0 steps in all) and 4 readings")) << tiny.printed;
  EXPECT_EQ(other.grid[0].name(), "16x2r2u1");
  EXPECT_EQ(other.grid[1].name(), "32x2r2-interleaved");
  changes.back() = "evaluation=[{length: 16, pairs: 2, examples: 30}, {length: 16, pairs: 2, examples: 3}]";
  tiny.set(changes);
  EXPECT_TRUE(test::fails_with(ExitCode::usage, {"two cells of length 16 with 2 pairs (16x2r1)"},
                               [&] { check_suite(tiny.suite); }));
}

TEST(Checkpoint, OfASuiteIsReadLikeAnyOther) {
  TinySuite tiny;
  const SuiteResults trained = tiny.run();
  const std::string cell = std::filesystem::path(tiny.files("cell.json").at(0)).parent_path();
  Monitor monitor(0, [] { return false; });
  ::testing::internal::CaptureStderr();
  const SuiteResults read = run_checkpoint(tiny.suite, false, cell, monitor);
  ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(read.complete());
  ASSERT_EQ(read.models.size(), 1u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read.models[0].best()->scores[i]->headline(), trained.models[1].best()->scores[i]->headline());
    EXPECT_EQ(read.models[0].best()->scores[i]->loss, trained.models[1].best()->scores[i]->loss);
  }
  EXPECT_EQ(read.models[0].parameters, trained.models[1].parameters);
  EXPECT_EQ(read.models[0].state_entries, trained.models[1].state_entries);
  EXPECT_EQ(read.models[0].best()->learning_rate, 1e-2);
  tiny.set({"task.vocab=50"});
  EXPECT_TRUE(test::fails_with(ExitCode::usage, {"vocabulary of 48", "smaller than the 50", "task.vocab"},
                               [&] { run_checkpoint(tiny.suite, false, cell, monitor); }));
}

TEST(Checkpoint, NamesOfOutputs) {
  EXPECT_EQ(checkpoint_name("runs/x"), "x");
  EXPECT_EQ(checkpoint_name("runs/x/"), "x");
  EXPECT_EQ(checkpoint_name("/a/runs/x/checkpoints/step-00000100/"), "x-step-00000100");
}

}  // namespace
}  // namespace kata
