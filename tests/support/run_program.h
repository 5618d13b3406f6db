// Real programs for tests: argv, environment, standard input, time limit, file size limit, another user; and
// code of the test itself in a forked child, where limits and users may be changed without harm.
#pragma once

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <fcntl.h>
#include <functional>
#include <grp.h>
#include <map>
#include <mutex>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/error.h"

extern char** environ;

namespace kata::test {

struct ProgramOptions {
  std::map<std::string, std::optional<std::string>>
      environment{};                          // added to the test's own; nullopt removes
  std::string input{};                        // standard input, then its end
  std::string folder{};                       // working directory; empty: the test's own
  double timeout_s = 120;                     // killed (SIGKILL) after this
  std::optional<uint64_t> file_size_limit{};  // RLIMIT_FSIZE: a disk that fills up
  std::optional<uid_t> user{};                // also its group; needs root
};

struct ProgramResult {
  int exit_code = -1;  // -1 when a signal ended it
  int signal = 0;
  bool timed_out = false;
  std::string out, err;
};

// A started program. Destroying it kills it if it still runs.
class Program {
 public:
  explicit Program(const std::vector<std::string>& argv, ProgramOptions options = {})
      : options_(std::move(options)) {
    start(argv);
    reader_ = std::thread([this] { transfer(); });
  }
  ~Program() {
    if (pid_ > 0) wait_until(std::chrono::steady_clock::now());
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) { ::kill(pid_, number); }

  // Until standard output plus standard error hold the text; false when the program ended or time ran out.
  bool wait_for(const std::string& text, double timeout_s = 60) {
    const auto shown = [&] {
      return result_.out.find(text) != std::string::npos || result_.err.find(text) != std::string::npos;
    };
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(timeout_s), [&] { return shown() || closed_; });
    return shown();
  }

  ProgramResult wait() {
    return wait_until(std::chrono::steady_clock::now() +
                      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                          std::chrono::duration<double>(options_.timeout_s)));
  }

 private:
  struct Pipe {
    int read_end = -1, write_end = -1;
    Pipe() {
      int ends[2];
      KATA_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "pipe: errno {}", errno);
      read_end = ends[0];
      write_end = ends[1];
    }
    ~Pipe() {
      close_read();
      close_write();
    }
    void close_read() {
      if (read_end >= 0) ::close(std::exchange(read_end, -1));
    }
    void close_write() {
      if (write_end >= 0) ::close(std::exchange(write_end, -1));
    }
  };

  std::vector<std::string> merged_environment() const {
    std::vector<std::string> merged;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      if (!options_.environment.contains(text.substr(0, text.find('=')))) merged.push_back(text);
    }
    for (const auto& [name, value] : options_.environment)
      if (value) merged.push_back(name + "=" + *value);
    return merged;
  }

  static std::vector<char*> pointers(std::vector<std::string>& strings) {
    std::vector<char*> list;
    for (std::string& s : strings) list.push_back(s.data());
    list.push_back(nullptr);
    return list;
  }

  void start(std::vector<std::string> argv) {
    std::vector<std::string> environment = merged_environment();
    const std::vector<char*> arguments = pointers(argv), variables = pointers(environment);
    Pipe failure;
    pid_ = ::fork();
    KATA_CHECK(pid_ >= 0, "fork: errno {}", errno);
    if (pid_ == 0) {
      become(arguments, variables);
      const int number = errno;
      [[maybe_unused]] const ssize_t n = ::write(failure.write_end, &number, sizeof number);
      ::_exit(127);
    }
    in_.close_read();
    out_.close_write();
    err_.close_write();
    failure.close_write();
    int number = 0;
    const bool failed = ::read(failure.read_end, &number, sizeof number) == sizeof number;
    if (failed) ::waitpid(std::exchange(pid_, -1), nullptr, 0);
    KATA_CHECK(!failed, "cannot start {}: errno {}", argv[0], number);
  }

  // In the child: only calls that are safe after a fork of a threaded process. Returns on failure.
  void become(const std::vector<char*>& arguments, const std::vector<char*>& variables) const {
    ::setpgid(0, 0);
    ::dup2(in_.read_end, 0);
    ::dup2(out_.write_end, 1);
    ::dup2(err_.write_end, 2);
    if (!options_.folder.empty() && ::chdir(options_.folder.c_str()) != 0) return;
    if (options_.file_size_limit) {
      const rlimit limit{*options_.file_size_limit, *options_.file_size_limit};
      if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return;
    }
    if (options_.user &&
        (::setgroups(0, nullptr) != 0 || ::setgid(*options_.user) != 0 || ::setuid(*options_.user) != 0))
      return;
    ::execve(arguments[0], arguments.data(), variables.data());
  }

  // Feeds standard input and collects the two outputs until both are closed.
  void transfer() {
    size_t fed = 0;
    sigset_t broken_pipe;
    sigemptyset(&broken_pipe);
    sigaddset(&broken_pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);  // a program may end before it has read all
    ::fcntl(in_.write_end, F_SETFL, O_NONBLOCK);
    while (out_.read_end >= 0 || err_.read_end >= 0) {
      if (fed == options_.input.size()) in_.close_write();
      pollfd files[3] = {{in_.write_end, POLLOUT, 0}, {out_.read_end, POLLIN, 0}, {err_.read_end, POLLIN, 0}};
      if (::poll(files, 3, -1) < 0) continue;
      if (files[0].revents != 0) {
        const ssize_t n = ::write(in_.write_end, options_.input.data() + fed, options_.input.size() - fed);
        if (n > 0) fed += static_cast<size_t>(n);
        if (n < 0 && errno != EAGAIN) fed = options_.input.size();  // the program reads no further
      }
      if (files[1].revents != 0) collect(out_, result_.out);
      if (files[2].revents != 0) collect(err_, result_.err);
    }
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  void collect(Pipe& pipe, std::string& text) {
    char buffer[65536];
    const ssize_t n = ::read(pipe.read_end, buffer, sizeof buffer);
    if (n <= 0) return pipe.close_read();
    const std::lock_guard lock(mutex_);
    text.append(buffer, static_cast<size_t>(n));
    changed_.notify_all();
  }

  ProgramResult wait_until(std::chrono::steady_clock::time_point deadline) {
    int status = 0;
    bool timed_out = false;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      if (!timed_out && std::chrono::steady_clock::now() >= deadline) {
        timed_out = true;
        ::kill(-pid_, SIGKILL);  // its whole group: nothing may hold the pipes open
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    pid_ = -1;
    reader_.join();
    result_.timed_out = timed_out;
    if (WIFEXITED(status)) result_.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) result_.signal = WTERMSIG(status);
    return result_;
  }

  ProgramOptions options_;
  pid_t pid_ = -1;
  Pipe in_, out_, err_;
  std::thread reader_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  ProgramResult result_;
};

inline ProgramResult run_program(const std::vector<std::string>& argv, ProgramOptions options = {}) {
  return Program(argv, std::move(options)).wait();
}

struct ChildResult {
  int exit_code = -1;  // what the body returned or the code of its Error; -1 when a signal ended it
  int signal = 0;
  std::string err;  // standard error, where the text of an Error goes as well
};

// Runs the body in a forked copy of the test (its output must fit a pipe, 64 kB). Expectations of the test
// framework made inside are lost: return a code instead.
inline ChildResult run_in_child(const std::function<int()>& body) {
  int ends[2];
  KATA_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "pipe: errno {}", errno);
  const pid_t pid = ::fork();
  KATA_CHECK(pid >= 0, "fork: errno {}", errno);
  if (pid == 0) {
    ::dup2(ends[1], 2);
    int code = 1;
    try {
      code = body();
    } catch (const Error& error) {
      ::dprintf(2, "%s", error.what());
      code = static_cast<int>(error.code());
    } catch (const std::exception& error) {
      ::dprintf(2, "%s", error.what());
    }
    ::_exit(code);
  }
  ::close(ends[1]);
  ChildResult result;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    result.err.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

// For the body of run_in_child: from now on no file may grow beyond `bytes`, as on a disk that is full.
inline void limit_file_size(uint64_t bytes) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{bytes, bytes};
  KATA_CHECK(::setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit: errno {}", errno);
}

// For the body of run_in_child: false when this process may not become nobody (and is not unprivileged now).
inline bool become_unprivileged() {
  constexpr uid_t nobody = 65534;
  if (::geteuid() != 0) return true;
  return ::setgroups(0, nullptr) == 0 && ::setegid(nobody) == 0 && ::seteuid(nobody) == 0;
}

}  // namespace kata::test
