// What this binary is: release, commit, build options.
#pragma once

#include <string>

namespace kata {

std::string version_text();  // several lines, for --version
std::string commit();        // "a1b2c3d4e5f6" or "a1b2c3d4e5f6-dirty"

}  // namespace kata
