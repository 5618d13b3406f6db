#include "base/program.h"

#include <cstdio>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <iostream>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "support/errors.h"
#include "support/run_program.h"
#include "support/temp_dir.h"

namespace kata {
namespace {

using test::ChildResult;
using test::run_in_child;

ChildResult run(const std::function<int()>& body) {
  char name[] = "katatest";
  char* argv[] = {name, nullptr};
  return run_in_child([&] { return run_main("katatest", 1, argv, body); });
}

TEST(Program, GivesTheValueOfTheBody) {
  EXPECT_EQ(run([] { return 0; }).exit_code, 0);
  EXPECT_EQ(run([] { return 130; }).exit_code, 130);
  EXPECT_EQ(run([] { return 0; }).err, "");
}

TEST(Program, AnErrorIsOneLineAndItsCode) {
  for (ExitCode code : {ExitCode::usage, ExitCode::data, ExitCode::numeric, ExitCode::device}) {
    const ChildResult result = run([&]() -> int { fail(code, "a\nb\r\n\tc\x1b[31m{}\n", "d"); });
    EXPECT_EQ(result.exit_code, static_cast<int>(code));
    EXPECT_EQ(result.err, "katatest: error: a b   c?[31md\n");
  }
}

TEST(Program, OurFaultsAreCodeOne) {
  const ChildResult checked = run([] {
    KATA_CHECK(1 + 1 == 3, "detail {}", 7);
    return 0;
  });
  EXPECT_EQ(checked.exit_code, 1);
  EXPECT_TRUE(checked.err.starts_with("katatest: error: internal error: 1 + 1 == 3 is false: detail 7 ("));
  const ChildResult thrown = run([]() -> int { throw 5; });
  EXPECT_EQ(thrown.exit_code, 1);
  EXPECT_TRUE(thrown.err.starts_with("katatest: error: internal error"));
}

TEST(Program, RefusedMemoryIsCodeFiveAndKeepsItsTable) {
  const ChildResult refused = run([]() -> int { throw std::bad_alloc(); });
  EXPECT_EQ(refused.exit_code, 5);
  EXPECT_TRUE(refused.err.starts_with("katatest: error: out of memory: ")) << refused.err;
  const ChildResult arena = run([] {
    Arena small(256);
    small.take("first block", DType::f32, {32});
    small.take("second block", DType::f32, {64});
    return 0;
  });
  EXPECT_EQ(arena.exit_code, 5);
  EXPECT_TRUE(arena.err.starts_with("katatest: error: out of memory: second block needs 256 B"));
  EXPECT_NE(arena.err.find(":\n  first block "), std::string::npos) << arena.err;
  EXPECT_TRUE(arena.err.ends_with("256 B\n")) << arena.err;
}

TEST(Program, AFullDiskAndAClosedPipeAreErrorsNotSignals) {
  const test::TempDir dir;
  const ChildResult full = run([&] {
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    write_file_atomic(dir / "x", std::string(5000, 'x'));
    return 0;
  });
  EXPECT_EQ(full.exit_code, 3);
  EXPECT_EQ(full.signal, 0);
  const ChildResult closed = run([] {
    int ends[2];
    if (::pipe(ends) != 0) return 99;
    ::close(ends[0]);
    return ::write(ends[1], "x", 1) < 0 && errno == EPIPE ? 7 : 98;
  });
  EXPECT_EQ(closed.exit_code, 7);
}

TEST(Program, StandardOutputMustArriveUnlessItsReaderLeft) {
  for (bool stream : {false, true}) {
    const auto print = [stream] {
      if (stream)
        std::cout << "text";
      else
        std::fputs("text", stdout);
      return 0;
    };
    const ChildResult full = run([&] {
      ::dup2(::open("/dev/full", O_WRONLY), 1);
      return print();
    });
    EXPECT_EQ(full.exit_code, 3);
    EXPECT_NE(full.err.find("standard output could not be written whole: No space left"), std::string::npos)
        << full.err;
    const ChildResult left = run([&] {
      int ends[2];
      if (::pipe(ends) != 0) return 99;
      ::close(ends[0]);
      ::dup2(ends[1], 1);
      return print();
    });
    EXPECT_EQ(left.exit_code, 0);
    EXPECT_EQ(left.err, "");
  }
}

TEST(Program, MoreThanOneMpiProcessIsRefused) {
  const char* names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"};
  for (const char* name : names) ::unsetenv(name);
  refuse_mpi();
  for (const char* name : names) {
    ::setenv(name, "4", 1);
    EXPECT_TRUE(
        test::fails_with(ExitCode::device, {name, "4 processes", "without mpirun"}, [] { refuse_mpi(); }));
    for (const char* single : {"1", "0", "", "x", "-3"}) {
      ::setenv(name, single, 1);
      EXPECT_NO_THROW(refuse_mpi()) << name << "=" << single;
    }
    ::unsetenv(name);
  }
}

}  // namespace
}  // namespace kata
