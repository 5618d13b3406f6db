// What the capacity suite found, as tables, as JSON and as one HTML file with pictures.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "eval/capacity.h"

namespace kata {

std::string capacity_tables(const CapacityResults& results);
nlohmann::ordered_json to_json(const CapacityResults& results);
std::string report_html(const CapacityResults& results);

// results.json and report.html in the folder; `extra_json`: one more place for the former, may be empty.
void write_results(const CapacityResults& results, const std::string& output, const std::string& extra_json);

}  // namespace kata
