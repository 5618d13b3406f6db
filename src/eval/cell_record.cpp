#include "eval/cell_record.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/crc32.h"
#include "base/file.h"
#include "base/log.h"

namespace kata {

namespace {

using nlohmann::json;

constexpr const char* file_name = "/cell.json";
constexpr const char* format_name = "kata suite cell";

json spec_json(const ExampleSpec& spec) {
  json all = {{"length", spec.length},
              {"pairs", spec.pairs},
              {"examples", spec.examples},
              {"vocab", spec.vocab},
              {"seed", spec.seed}};
  if (spec.task == "overwrite") {
    all["rewrites"] = spec.rewrites;
    all["rewritten"] = spec.rewritten;
    all["layout"] = spec.layout;
  }
  return all;
}

ExampleSpec parse_spec(const json& from) {
  ExampleSpec spec{from.at("length"), from.at("pairs"), from.at("examples"), from.at("vocab"),
                   from.at("seed")};
  if (!from.contains("rewrites")) return spec;
  spec.task = "overwrite";
  spec.rewrites = from.at("rewrites");
  spec.rewritten = from.at("rewritten");
  spec.layout = from.at("layout");
  return spec;
}

json entry_json(const CellRecord::Entry& entry) {
  json all = spec_json(entry.spec);
  for (const Metric& metric : entry.score.metrics) all[metric.name] = metric.value;
  all["loss"] = std::isfinite(entry.score.loss) ? json(entry.score.loss) : json(nullptr);
  return all;
}

CellRecord::Entry parse_entry(const json& from) {
  CellRecord::Entry entry;
  entry.spec = parse_spec(from);
  for (const std::string& name : metric_names(entry.spec))
    entry.score.metrics.push_back({name, from.at(name)});
  entry.score.loss =
      from.at("loss").is_null() ? std::numeric_limits<double>::quiet_NaN() : from.at("loss").get<double>();
  entry.score.examples = entry.spec.examples;
  return entry;
}

// Of everything but itself. Keys are sorted and numbers have their shortest form, so that what was read is
// written again with the same bytes.
std::string checksum_of(json all) {
  all.erase("checksum");
  return crc32_text(crc32(all.dump()));
}

CellRecord parse(const std::string& text) {
  const json all = json::parse(text);
  if (all.at("format") != format_name) fail(ExitCode::data, "not a record of this program");
  if (all.at("checksum") != checksum_of(all)) fail(ExitCode::data, "its checksum does not fit its text");
  CellRecord record;
  record.key = all.at("key");
  record.model = all.at("model");
  record.learning_rate = all.at("learning_rate");
  record.trouble = all.at("trouble");
  record.commit = all.at("commit");
  for (const json& entry : all.at("scores")) record.scores.push_back(parse_entry(entry));
  return record;
}

}  // namespace

const CellScore* CellRecord::find(const ExampleSpec& spec) const {
  for (const Entry& entry : scores)
    if (entry.spec == spec) return &entry.score;
  return nullptr;
}

CellRecord load_record(const std::string& folder, const std::string& key) {
  CellRecord none;
  none.key = key;
  const std::string path = folder + file_name;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return none;
  std::string why;
  try {
    CellRecord record = parse(read_file(path));
    if (record.key == key) return record;
    why = "it belongs to another training run";
  } catch (const json::exception& error) {
    why = fmt::format("it cannot be read ({})", error.what());
  } catch (const Error& error) {
    why = error.what();
  }
  logger().warn("{}: {}; its scores are read anew", path, why);
  return none;
}

void save_record(const std::string& folder, const CellRecord& record) {
  json all = {{"format", format_name},     {"key", record.key},
              {"model", record.model},     {"learning_rate", record.learning_rate},
              {"trouble", record.trouble}, {"commit", record.commit},
              {"scores", json::array()}};
  for (const CellRecord::Entry& entry : record.scores) all["scores"].push_back(entry_json(entry));
  all["checksum"] = checksum_of(all);
  make_directories(folder);
  write_file_atomic(folder + file_name, all.dump(1) + "\n");
}

}  // namespace kata
