#include "eval/results.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "eval/report.h"

namespace kata {
namespace {

RateResult rate(double learning_rate, std::vector<std::optional<CellScore>> scores) {
  RateResult result;
  result.learning_rate = learning_rate;
  result.scores = std::move(scores);
  result.train_seconds = 1.25;
  return result;
}
CellScore accuracy(double value) {
  return {{{"accuracy", value}}, 0.5, 100};
}

SuiteResults sample() {
  SuiteResults results;
  results.suite.suite = "sample";
  results.grid = {
      {{64, 8, 100, 512, 1}, true}, {{128, 16, 100, 512, 2}, false}, {{128, 32, 100, 512, 3}, false}};
  ModelResult model;
  model.name = "kata_m1";
  model.parameters = 1234567;
  model.state_entries = {999, 1000, 1000};
  model.rates = {rate(1e-3, {accuracy(0.5), accuracy(0.25), accuracy(0)}),
                 rate(3e-3, {accuracy(1), accuracy(0.5), accuracy(0.125)}),
                 rate(1e-2, {accuracy(1), accuracy(0.5), accuracy(0.125)})};
  results.models = {model};
  results.planned_models = 1;
  results.commit = "abc";
  return results;
}

TEST(Results, TheFirstOfTheBestRatesIsReported) {
  SuiteResults results = sample();
  EXPECT_EQ(results.models[0].best()->learning_rate, 3e-3);
  results.models[0].rates[1].trouble = "diverged";
  EXPECT_EQ(results.models[0].best()->learning_rate, 1e-2);
  results.models[0].rates[2].scores[1].reset();  // not finished: a complete one goes before it
  EXPECT_EQ(results.models[0].best()->learning_rate, 1e-3);
  EXPECT_FALSE(results.complete());
  results.models[0].rates.erase(results.models[0].rates.begin());
  EXPECT_EQ(results.models[0].best()->learning_rate, 1e-2);
  results.models[0].rates.pop_back();
  EXPECT_EQ(results.models[0].best(), nullptr);
  EXPECT_TRUE(results.complete()) << "a training that failed for good is finished";
  results.planned_models = 2;
  EXPECT_FALSE(results.complete());
}

TEST(Results, Table) {
  SuiteResults results = sample();
  const ResultTable table = result_table(results);
  EXPECT_EQ(table.rows[0], (std::vector<std::string>{"model", "64x8*", "128x16", "128x32", "state@64",
                                                     "state@128", "parameters", "lr", "train s"}));
  EXPECT_EQ(table.rows[1], (std::vector<std::string>{"kata_m1", "1.000", "0.500", "0.125", "999", "1,000",
                                                     "1,234,567", "0.003", "1.2"}));
  const std::string text = table_text(table);
  EXPECT_NE(text.find("\nmodel    64x8*  128x16"), std::string::npos) << text;
  EXPECT_NE(text.find("\nkata_m1  1.000   0.500"), std::string::npos) << text;
  EXPECT_NE(text.find("mass included"), std::string::npos) << text;
  results.models[0].rates = {rate(1e-3, {std::nullopt, std::nullopt, std::nullopt})};
  results.models[0].rates[0].trouble = "diverged";
  EXPECT_EQ(result_table(results).rows[1][1], "failed");
}

// Of overwrite the table shows two rates a cell; by number of rewrites they are weighted by questions.
TEST(Results, TableOfOverwrite) {
  SuiteResults results = sample();
  results.suite.task.name = "overwrite";
  results.grid.clear();
  for (const auto& [rewrites, rewritten] : {std::pair{1, 4}, {2, 4}, {2, 1}})
    results.grid.push_back({{64, 4, 100, 512, 1, "overwrite", rewrites, rewritten, "block"}, rewrites == 1});
  const auto cell = [](double latest, double stale) {
    return CellScore{{{"latest_acc", latest}, {"stale_rate", stale}}, 0.5, 100};
  };
  ModelResult& model = results.models[0];
  // The stale rate has no say in which rate is best.
  model.rates = {rate(1e-3, {cell(0.5, 0.5), cell(0.25, 0.75), cell(0.25, 0.75)}),
                 rate(3e-3, {cell(0.75, 0), cell(0.5, 0.125), cell(0, 1)})};
  const ResultTable table = result_table(results);
  EXPECT_EQ(table.rows[0], (std::vector<std::string>{"model", "64x4r1*", "64x4r2", "64x4r2u1", "state@64",
                                                     "parameters", "lr", "train s"}));
  EXPECT_EQ(table.rows[1], (std::vector<std::string>{"kata_m1", "0.750/0.000", "0.500/0.125", "0.000/1.000",
                                                     "999", "1,234,567", "0.003", "1.2"}));
  const std::string text = table_text(table);
  for (const char* part :
       {"latest accuracy/stale rate", "r1 0.500/0.500, r2 0.333/0.667",
        "64x4r1 0.125/0.125, 64x4r2 0.083/0.167, 64x4r2u1 0.167/0.333", "best mean latest accuracy"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in " << text;
  const auto json = to_json(results);
  const auto& by_rewrites = json.at("models").at("kata_m1").at("by_rewrites");
  EXPECT_EQ(by_rewrites.at("1").at("latest_acc"), 0.75);
  EXPECT_DOUBLE_EQ(by_rewrites.at("2").at("latest_acc"), (4 * 0.5 + 0) / 5);
  EXPECT_DOUBLE_EQ(by_rewrites.at("2").at("stale_rate"), (4 * 0.125 + 1) / 5);
}

TEST(Results, JsonHoldsNoNumberThatIsNone) {
  SuiteResults results = sample();
  results.models[0].rates[0].scores[0]->loss = std::numeric_limits<double>::infinity();
  results.models[0].rates[1].scores[0]->loss = std::numeric_limits<double>::quiet_NaN();
  const auto json = to_json(results);
  EXPECT_EQ(nlohmann::ordered_json::parse(json.dump()), json);
  EXPECT_TRUE(json.at("results").at("kata_m1").at("64x8").at("loss").is_null());
  EXPECT_EQ(json.at("results").at("kata_m1").at("128x32").at("accuracy"), 0.125);
  EXPECT_EQ(json.at("models").at("kata_m1").at("best_learning_rate"), 3e-3);
  EXPECT_EQ(json.at("models").at("kata_m1").at("state_entries").at("128"), 1000);
  EXPECT_EQ(json.at("models").at("kata_m1").at("rates").size(), 3u);
}

TEST(Results, AReportOfNothingIsStillAReport) {
  SuiteResults results = sample();
  results.models.clear();
  EXPECT_NE(report_html(results).find("not complete"), std::string::npos);
  results = sample();
  results.models[0].rates = {rate(1e-3, {std::nullopt, std::nullopt, std::nullopt})};
  results.models[0].rates[0].trouble = "diverged <here>";
  const std::string report = report_html(results);
  EXPECT_NE(report.find("diverged &lt;here&gt;"), std::string::npos);
  EXPECT_EQ(report.find("nan"), std::string::npos);
}

TEST(Results, DatesAreIso8601) {
  const std::string now = utc_now();
  EXPECT_EQ(now.size(), std::string("2000-01-01T00:00:00Z").size());
  EXPECT_EQ(now[10], 'T');
  EXPECT_EQ(now.back(), 'Z');
}

}  // namespace
}  // namespace kata
