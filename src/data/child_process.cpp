#include "data/child_process.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"

namespace kata {

namespace {

// The first byte that a child sends: what follows is the body's value, an exception's text, or nothing.
enum class Mark : char { value = 'v', exception = 'e', memory = 'm' };

bool send(int to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::write(to, bytes.data(), bytes.size());
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

std::string receive(int from) {
  std::string bytes;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(from, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(got));
  }
}

[[noreturn]] void be_child(int to, pid_t parent, const std::function<std::string()>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it has died already
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGINT, SIGTERM})
    std::signal(number, SIG_DFL);
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere, stream);
  std::string answer;
  try {
    answer = static_cast<char>(Mark::value) + body();
  } catch (const std::bad_alloc&) {
    answer = static_cast<char>(Mark::memory);
  } catch (const std::exception& error) {
    answer = static_cast<char>(Mark::exception) + std::string(error.what());
  } catch (...) {
    answer = static_cast<char>(Mark::exception) + std::string("an exception of no known type");
  }
  ::_exit(send(to, answer) ? 0 : 1);
}

ChildOutcome outcome_of(int status, const std::string& answer) {
  if (WIFSIGNALED(status))
    return {false, "", fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)))};
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || answer.empty())
    return {false, "", fmt::format("exit code {}", WIFEXITED(status) ? WEXITSTATUS(status) : -1)};
  if (answer[0] == static_cast<char>(Mark::memory)) throw std::bad_alloc();
  if (answer[0] == static_cast<char>(Mark::exception)) return {false, "", answer.substr(1)};
  return {true, answer.substr(1), ""};
}

}  // namespace

ChildOutcome run_in_child(const std::function<std::string()>& body) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::bad_alloc();
  const pid_t parent = ::getpid(), child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    be_child(ends[1], parent, body);
  }
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    throw std::bad_alloc();
  }
  const std::string answer = receive(ends[0]);
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) KATA_CHECK(errno == EINTR, "waitpid: {}", std::strerror(errno));
  return outcome_of(status, answer);
}

}  // namespace kata
