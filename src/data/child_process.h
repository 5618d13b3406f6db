// Code of a library that may end the process it runs in (it answers some faults with exit or abort).
#pragma once

#include <functional>
#include <string>

namespace kata {

struct ChildOutcome {
  bool returned = false;  // the body came to its end
  std::string value;      // what it returned
  std::string ending;  // otherwise: "exit code 255", "signal 11 (Segmentation fault)" or an exception's text
};

// Runs the body in a forked copy of this process, whose standard streams lead nowhere and which dies with its
// parent. The body must not use OpenMP or a GPU. std::bad_alloc where the body had it or no process could be
// made.
ChildOutcome run_in_child(const std::function<std::string()>& body);

}  // namespace kata
