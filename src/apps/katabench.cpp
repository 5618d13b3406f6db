// katabench: times ops on this machine beside the rates that the machine was measured to have.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iostream>
#include <unistd.h>

#include "apps/options.h"
#include "base/file.h"
#include "bench/data.h"
#include "bench/report.h"
#include "config/schema.h"

namespace {

using namespace kata;

constexpr const char* example =
    "Example:\n"
    "  katabench matmul cross_entropy --json bench.json\n"
    "measures the matrix and copy rates, times every case of the two ops, prints a table and writes the "
    "same\n"
    "numbers to bench.json. OMP_NUM_THREADS sets the number of threads.";

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const BenchCase& entry : bench_cases()) names.emplace_back(entry.op);
  return names;
}

void check_names(const std::vector<std::string>& wanted) {
  const std::vector<std::string> names = op_names();
  for (const std::string& op : wanted) {
    if (std::find(names.begin(), names.end(), op) != names.end()) continue;
    const std::string near = nearest_name(op, names);
    fail(ExitCode::usage, "no op '{}'{}; katabench --list shows all", op,
         near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
  }
}

// Before the minutes of measuring, not after them.
void check_writable(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const bool exists = access(path.c_str(), F_OK) == 0;
  const std::string target = exists ? path : (folder.empty() ? "." : folder.string()) + "/";
  if (access(target.c_str(), W_OK) != 0) fail_file(ExitCode::data, "cannot write", path, errno);
  if (std::filesystem::is_directory(path)) fail_file(ExitCode::data, "cannot write", path, EISDIR);
}

std::vector<BenchRow> run_cases(const std::vector<std::string>& wanted, const MachineRates& rates) {
  std::vector<BenchRow> rows;
  for (const BenchCase& entry : bench_cases()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), entry.op) == wanted.end()) continue;
    logger().info("{}", entry.op);
    Bench bench(entry.op, rates.matrix_flops, rates.copy_bytes);
    entry.function(bench);
    rows.insert(rows.end(), bench.rows().begin(), bench.rows().end());
  }
  return rows;
}

int bench_main(int argc, char** argv) {
  CLI::App app("Times ops against the measured rates of this machine.", "katabench");
  app.footer(example);
  SharedOptions options;
  std::vector<std::string> wanted;
  std::string json;
  bool list = false;
  app.add_option("op", wanted, "ops to time; all without");
  app.add_flag("--list", list, "print the ops and leave");
  app.add_option("--json", json, "also write the numbers to FILE")
      ->type_name("FILE")
      ->check([](const std::string& name) { return name.empty() ? "expected a file name" : ""; });
  std::string precision;
  app.add_option("--precision", precision, "fp32 or bf16; default: bf16 on a GPU, else fp32")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  add_device_option(app, options);
  add_log_options(app, options);
  if (!parse(app, argc, argv, options)) return 0;
  check_names(wanted);
  if (list) {
    for (const std::string& name : op_names()) std::cout << name << "\n";
    return 0;
  }
  if (!json.empty()) check_writable(json);
  const ChosenProcessor processor(options, precision.empty() ? "fp32" : precision);
  if (precision.empty()) precision = processor.get().device == Device::cuda ? "bf16" : "fp32";
  bench_target() = {processor.get(), precision == "bf16" ? DType::bf16 : DType::f32};
  const MachineRates rates = measure_rates();
  const std::vector<BenchRow> rows = run_cases(wanted, rates);
  std::cout << bench_table(rates, rows);
  if (!json.empty()) write_file_atomic(json, bench_json(rates, rows));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return kata::run_main("katabench", argc, argv, [&] { return bench_main(argc, argv); });
}
