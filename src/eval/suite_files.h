// Where suites are found.
#pragma once

#include <string>
#include <vector>

namespace kata {

// Folders that may hold suites, the first that is there first: configs/suites below the working directory,
// then next to the program (its build folder's tree, or share/kata where it is installed).
std::vector<std::string> suite_folders();

// The config of a suite by its name. ExitCode::usage with the nearest name when there is none.
std::string find_suite(const std::string& name, const std::vector<std::string>& folders);

}  // namespace kata
