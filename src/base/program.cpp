#include "base/program.h"

#include <cctype>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <poll.h>
#include <system_error>
#include <unistd.h>

#include "base/error.h"

namespace kata {

namespace {

int report(const char* program, std::string_view message, int code) {
  const std::string line = fmt::format("{}: error: {}\n", program, one_line(message));
  std::fflush(stdout);
  std::fwrite(line.data(), 1, line.size(), stderr);
  return code;
}

// True when standard output is a pipe whose reader has left (| head): it has chosen to stop.
bool reader_left() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&output, 1, 0) > 0 && (output.revents & POLLERR) != 0;
}

void flush_output() {
  errno = 0;
  std::cout.flush();
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout;
  if (failed && !reader_left())
    fail(ExitCode::data, "standard output could not be written whole{}{}; check the disk that it goes to",
         errno == 0 ? "" : ": ", errno == 0 ? "" : std::generic_category().message(errno));
}

}  // namespace

std::string one_line(std::string_view message) {
  const bool table = message.starts_with("out of memory");
  while (!message.empty() && std::isspace(static_cast<unsigned char>(message.back())))
    message.remove_suffix(1);
  std::string line;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n' && table)
      line += c;
    else if (c == '\n' || c == '\r' || c == '\t')
      line += ' ';
    else
      line += byte < 0x20 || byte == 0x7F ? '?' : c;
  }
  return line;
}

int run_main(const char* program, int, char**, const std::function<int()>& body) {
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const int code = body();
    if (code == 0) flush_output();
    return code;
  } catch (const Error& error) {
    return report(program, error.what(), static_cast<int>(error.code()));
  } catch (const std::bad_alloc&) {
    return report(program,
                  "out of memory: the system refused an allocation; free memory or use smaller sizes",
                  static_cast<int>(ExitCode::device));
  } catch (const std::exception& error) {
    return report(program, error.what(), 1);
  } catch (...) {
    return report(program, "internal error: something that is no exception was thrown; please report this",
                  1);
  }
}

void refuse_mpi() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"}) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    long long processes = 0;
    std::from_chars(text, text + std::strlen(text), processes);
    if (processes > 1)
      fail(ExitCode::device,
           "started by MPI as {} processes ({}), but this program has no distributed support; start it "
           "without "
           "mpirun",
           processes, name);
  }
}

}  // namespace kata
