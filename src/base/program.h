// The frame of every main(): errors become one line on standard error and an exit code.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace kata {

// Runs the body and returns what main() returns: the body's value, or the code of the Error that it threw
// after printing "<program>: error: <text>". Memory that the system refuses is code 5, a fault of ours
// code 1. Also makes a full disk and a closed pipe errors of the call that meets them instead of deadly
// signals, and a standard output that could not be written whole an error.
int run_main(const char* program, int argc, char** argv, const std::function<int()>& body);

// ExitCode::device when MPI started more than one process: for programs without distributed support.
void refuse_mpi();

// A message as one printable line. Out-of-memory messages end in a table, whose lines stay.
std::string one_line(std::string_view message);

}  // namespace kata
