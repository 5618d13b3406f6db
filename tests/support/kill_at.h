// Kills a forked child at a chosen system call: every moment of a sequence of file operations can be tried,
// in turn, where kills after random times would seldom meet the narrow ones.
#pragma once

#include <algorithm>
#include <csignal>
#include <functional>
#include <iterator>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"

namespace kata::test {

enum class KillOutcome { killed, finished, not_permitted };

// True for the calls after which a folder lists other names.
inline bool changes_names(uint64_t call) {
  const uint64_t calls[] = {
#ifdef SYS_rename
      SYS_rename,    SYS_unlink,   SYS_rmdir,  SYS_mkdir,
#endif
#ifdef SYS_renameat
      SYS_renameat,
#endif
      SYS_renameat2, SYS_unlinkat, SYS_mkdirat};
  return std::find(std::begin(calls), std::end(calls), call) != std::end(calls);
}

// Runs the body in a child that is killed (SIGKILL) just before its n-th call of that kind, counted from 1.
inline KillOutcome kill_before_change(int n, const std::function<void()>& body) {
  const pid_t pid = ::fork();
  KATA_CHECK(pid >= 0, "fork failed");
  if (pid == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(99);
    ::raise(SIGSTOP);
    try {
      body();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (!WIFSTOPPED(status)) return KillOutcome::not_permitted;
  ::ptrace(PTRACE_SETOPTIONS, pid, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  while (::ptrace(PTRACE_SYSCALL, pid, nullptr, nullptr) == 0 && ::waitpid(pid, &status, 0) == pid) {
    if (!WIFSTOPPED(status)) break;
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) continue;
    __ptrace_syscall_info info{};
    ::ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info);
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY || !changes_names(info.entry.nr) || --n > 0) continue;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, &status, 0);
    return KillOutcome::killed;
  }
  KATA_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the traced child ended with status {}", status);
  return KillOutcome::finished;
}

}  // namespace kata::test
