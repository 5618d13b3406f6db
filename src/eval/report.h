// The report of a suite as one HTML file that needs nothing beside it: charts, table, config, commit.
#pragma once

#include <string>

#include "eval/results.h"

namespace kata {

std::string report_html(const SuiteResults& results);

}  // namespace kata
