#include "bench/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/parallel.h"
#include "base/version.h"
#include "bench/data.h"
#include "ops/cpu/gemm.h"

namespace kata {

namespace {

std::string human_time(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.2f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::string rate_or_dash(double work, double seconds) {
  return work > 0 ? fmt::format("{:.1f}", work / seconds * 1e-9) : "-";
}

}  // namespace

std::string bench_table(const MachineRates& rates, const std::vector<BenchRow>& rows) {
  size_t op = 2, name = 4;
  for (const BenchRow& row : rows) {
    op = std::max(op, row.op.size());
    name = std::max(name, row.name.size());
  }
  const BenchTarget& target = bench_target();
  std::string text = target.gpu()
                         ? fmt::format("{}, {}", target.processor.gpu->name(), name_of(target.element))
                         : fmt::format("{} threads, BLAS core {}", thread_count(), cpu::blas_core());
  text += fmt::format(": matrix product {:.1f} GFLOP/s, copy {:.1f} GB/s\n\n", rates.matrix_flops * 1e-9,
                      rates.copy_bytes * 1e-9);
  text += fmt::format("{:<{}}  {:<{}}  {:>10}  {:>9}  {:>7}  {:>9}  {:>8}\n", "op", op, "case", name, "time",
                      "GFLOP/s", "GB/s", "ns/token", "roofline");
  for (const BenchRow& row : rows)
    text += fmt::format(
        "{:<{}}  {:<{}}  {:>10}  {:>9}  {:>7}  {:>9}  {:>8.2f}\n", row.op, op, row.name, name,
        human_time(row.seconds), rate_or_dash(row.work.flops, row.seconds),
        rate_or_dash(row.work.bytes, row.seconds),
        row.work.tokens > 0 ? fmt::format("{:.1f}", row.seconds / row.work.tokens * 1e9) : "-", row.roofline);
  return text +
         "\nroofline: floor / time, floor = max(operations / matrix rate, bytes / copy rate); above 1 where "
         "the data stays in a cache\n";
}

std::string bench_json(const MachineRates& rates, const std::vector<BenchRow>& rows) {
  nlohmann::ordered_json json;
  json["commit"] = commit();
  const BenchTarget& target = bench_target();
  json["device"] = target.gpu() ? target.processor.gpu->name() : "cpu";
  json["element"] = name_of(target.element);
  json["threads"] = thread_count();
  json["blas_core"] = cpu::blas_core();
  json["matrix_flops_per_s"] = rates.matrix_flops;
  json["copy_bytes_per_s"] = rates.copy_bytes;
  json["rows"] = nlohmann::ordered_json::array();
  for (const BenchRow& row : rows) {
    nlohmann::ordered_json entry;
    entry["op"] = row.op;
    entry["case"] = row.name;
    entry["seconds"] = row.seconds;
    entry["flops_per_s"] = row.work.flops / row.seconds;
    entry["bytes_per_s"] = row.work.bytes / row.seconds;
    if (row.work.tokens > 0) entry["seconds_per_token"] = row.seconds / row.work.tokens;
    entry["roofline"] = row.roofline;
    json["rows"].push_back(entry);
  }
  return json.dump(2) + "\n";
}

}  // namespace kata
