#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support/errors.h"
#include "support/run_program.h"
#include "support/temp_dir.h"

namespace kata {
namespace {

namespace fs = std::filesystem;
using test::fails_with;
using test::run_in_child;
using test::TempDir;

std::vector<std::string> entries(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

using Names = std::vector<std::string>;

TEST(File, WrittenBytesAreReadBack) {
  const TempDir dir;
  for (size_t size : {0, 1, 4096, (1 << 20) - 1, 1 << 20, 3000001}) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
    const FileSummary summary = write_file_atomic(dir / "x", bytes);
    EXPECT_EQ(summary.bytes, size);
    EXPECT_EQ(summary.crc32, crc32(bytes));
    EXPECT_EQ(read_file(dir / "x"), bytes);
    const MappedFile mapped(dir / "x");
    ASSERT_EQ(mapped.size(), size);
    EXPECT_EQ(crc32(mapped.data(), mapped.size()), crc32(bytes));
  }
  EXPECT_EQ(entries(dir.path()), Names{"x"});
}

TEST(File, PiecesOfEverySizeArriveInOrder) {
  const TempDir dir;
  std::string expected;
  const FileSummary summary = write_file_atomic(dir / "x", [&](FileWriter& writer) {
    for (size_t i = 0; i < 40; ++i) {
      const std::string piece(i * i * i * 50, static_cast<char>('a' + i % 26));  // up to 2.9 MB, buffer 1 MiB
      writer.write(piece);
      expected += piece;
    }
  });
  EXPECT_EQ(read_file(dir / "x"), expected);
  EXPECT_EQ(summary.bytes, expected.size());
  EXPECT_EQ(summary.crc32, crc32(expected));
  const std::string large(1 << 21, 'y');  // past the buffer, in which the line before it waits
  write_file_atomic(dir / "x", [&](FileWriter& writer) {
    writer.write("first\n");
    writer.write(large);
    writer.write("last\n");
  });
  EXPECT_EQ(read_file(dir / "x"), "first\n" + large + "last\n");
}

TEST(File, ReadsWhatHasNoSize) {
  EXPECT_TRUE(read_file("/proc/self/status").starts_with("Name:"));
  EXPECT_EQ(read_file("/dev/null"), "");
  EXPECT_TRUE(fails_with(ExitCode::data, {"/dev/zero", "more than 64 MiB"}, [] { read_file("/dev/zero"); }));
  EXPECT_TRUE(fails_with(ExitCode::data, {"/dev/null", "regular file"}, [] { InputFile("/dev/null"); }));
}

TEST(File, ReadErrorsSayWhatToDo) {
  const TempDir dir;
  write_file_atomic(dir / "file", "x");
  const auto reads = {+[](const std::string& p) { read_file(p); },
                      +[](const std::string& p) { InputFile file(p); },
                      +[](const std::string& p) { MappedFile file(p); }};
  for (const auto read : reads) {
    EXPECT_TRUE(
        fails_with(ExitCode::data, {dir / "none", "No such file", "spelling"}, [&] { read(dir / "none"); }));
    EXPECT_TRUE(
        fails_with(ExitCode::data, {dir.path(), "directory", "not a folder"}, [&] { read(dir.path()); }));
    EXPECT_TRUE(fails_with(ExitCode::data, {dir / "file/below", "Not a directory", "is a file"},
                           [&] { read(dir / "file/below"); }));
    EXPECT_TRUE(fails_with(ExitCode::data, {"empty path"}, [&] { read(""); }));
  }
  EXPECT_TRUE(fails_with(ExitCode::usage, {"none"}, [&] { read_file(dir / "none", ExitCode::usage); }));
}

TEST(File, ReadAtNeverRunsPastTheEnd) {
  const TempDir dir;
  write_file_atomic(dir / "x", "0123456789");
  const InputFile file(dir / "x");
  char buffer[4] = {};
  file.read_at(6, buffer, 4);
  EXPECT_EQ(std::string(buffer, 4), "6789");
  EXPECT_TRUE(fails_with(ExitCode::data, {dir / "x", "ends at byte 10", "4 bytes at 7"},
                         [&] { file.read_at(7, buffer, 4); }));
}

TEST(File, NoPermissionIsAnErrorOfReadingAndWriting) {
  const TempDir dir;
  fs::create_directory(dir / "shut");
  write_file_atomic(dir / "secret", "x");
  write_file_atomic(dir / "constant", "kept");
  ::chmod(dir.path().c_str(), 0755);
  ::chmod((dir / "shut").c_str(), 0555);
  ::chmod((dir / "secret").c_str(), 0);
  ::chmod((dir / "constant").c_str(), 0444);
  const auto as_nobody = [](const std::function<void()>& body) {
    return run_in_child([&] {
      if (!test::become_unprivileged()) return 99;
      body();
      return 0;
    });
  };
  const auto read = as_nobody([&] { read_file(dir / "secret"); });
  if (read.exit_code == 99) GTEST_SKIP() << "this process may not become an unprivileged user";
  EXPECT_EQ(read.exit_code, 3);
  EXPECT_NE(read.err.find("Permission denied; check the permissions"), std::string::npos) << read.err;
  for (const std::string& path : {dir / "shut/new", dir / "constant", dir / "shut/a/b"}) {
    const auto write = as_nobody([&] {
      if (path.ends_with("/b")) make_directories(dir / "shut/a");
      write_file_atomic(path, "bytes");
    });
    EXPECT_EQ(write.exit_code, 3) << path;
    EXPECT_NE(write.err.find("Permission denied; check the permissions"), std::string::npos) << write.err;
  }
  EXPECT_EQ(entries(dir / "shut"), Names{});
  EXPECT_EQ(entries(dir.path()), (Names{"constant", "secret", "shut"}));
}

TEST(File, AFullDiskLeavesTheOldFileAndNoTemporary) {
  const TempDir dir;
  write_file_atomic(dir / "x", "old");
  for (size_t size : {5000, 5000000}) {  // within and above the writer's buffer
    const auto result = run_in_child([&] {
      test::limit_file_size(4096);
      write_file_atomic(dir / "x", std::string(size, 'n'));
      return 0;
    });
    EXPECT_EQ(result.exit_code, 3);
    for (const std::string& part : {dir / "x", std::string("File too large after 4096 of "),
                                    std::to_string(size), std::string("ulimit -f")})
      EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    EXPECT_EQ(read_file(dir / "x"), "old");
    EXPECT_EQ(entries(dir.path()), Names{"x"});
  }
  EXPECT_TRUE(fails_with(ExitCode::data, {"/dev/full", "No space left on device", "free some space"},
                         [] { write_file_atomic("/dev/full", "bytes"); }));
}

TEST(File, AThrowingCallbackLeavesTheOldFileAndNoTemporary) {
  const TempDir dir;
  write_file_atomic(dir / "x", "old");
  EXPECT_THROW(write_file_atomic(dir / "x",
                                 [](FileWriter& writer) {
                                   writer.write("half");
                                   throw std::runtime_error("stop");
                                 }),
               std::runtime_error);
  EXPECT_EQ(read_file(dir / "x"), "old");
  EXPECT_EQ(entries(dir.path()), Names{"x"});
}

TEST(File, WriteErrorsSayWhatToDo) {
  const TempDir dir;
  write_file_atomic(dir / "file", "x");
  const auto write = [](const std::string& path) { return [path] { write_file_atomic(path, "bytes"); }; };
  EXPECT_TRUE(fails_with(ExitCode::data, {dir / "no/x", "No such file"}, write(dir / "no/x")));
  EXPECT_TRUE(fails_with(ExitCode::data, {dir / "file/x", "Not a directory"}, write(dir / "file/x")));
  EXPECT_TRUE(fails_with(ExitCode::data, {dir.path(), "directory"}, write(dir.path())));
  EXPECT_TRUE(fails_with(ExitCode::data, {dir / "new/", "directory"}, write(dir / "new/")));
  EXPECT_TRUE(fails_with(ExitCode::data, {"empty path"}, write("")));
  EXPECT_TRUE(fails_with(ExitCode::data, {"too long"}, write(dir / std::string(300, 'a'))));
  EXPECT_EQ(entries(dir.path()), Names{"file"});
}

TEST(File, ReplacingKeepsPermissionsAndFollowsLinks) {
  const TempDir dir;
  write_file_atomic(dir / "real", "old");
  ::chmod((dir / "real").c_str(), 0640);
  fs::create_symlink("real", dir / "link");
  write_file_atomic(dir / "link", "new");
  EXPECT_TRUE(fs::is_symlink(dir / "link"));
  EXPECT_EQ(read_file(dir / "real"), "new");
  struct stat status {};
  ASSERT_EQ(::stat((dir / "real").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0640u);
}

TEST(File, DevicesAndPipesAreWrittenAndNotReplaced) {
  write_file_atomic("/dev/null", "bytes");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  const auto result = run_in_child([] {
    write_file_atomic("/dev/stderr", "through the pipe");
    return 0;
  });
  EXPECT_EQ(result.err, "through the pipe");
}

TEST(File, DirectoriesAreMadeOrTheErrorNamesThem) {
  const TempDir dir;
  make_directories(dir / "a/b/c");
  make_directories(dir / "a/b/c");
  EXPECT_TRUE(fs::is_directory(dir / "a/b/c"));
  write_file_atomic(dir / "file", "x");
  EXPECT_TRUE(
      fails_with(ExitCode::data, {dir / "file", "Not a directory"}, [&] { make_directories(dir / "file"); }));
  EXPECT_TRUE(
      fails_with(ExitCode::data, {dir / "file/x", "is a file"}, [&] { make_directories(dir / "file/x"); }));
  EXPECT_TRUE(fails_with(ExitCode::data, {"empty path"}, [&] { make_directories(""); }));
}

TEST(File, TemporariesAreRemovedAndNothingElse) {
  const TempDir dir;
  make_directories(dir / ".tmp-step/inside");
  write_file_atomic(dir / ".tmp-step/inside/x", "x");
  write_file_atomic(dir / ".tmp-1-2", "x");
  write_file_atomic(dir / "tmp-kept", "x");
  write_file_atomic(dir / ".hidden", "x");
  remove_temporaries(dir.path());
  EXPECT_EQ(entries(dir.path()), (Names{".hidden", "tmp-kept"}));
}

TEST(File, PatternsAreSortedAndKeepTheirOrder) {
  const TempDir dir;
  for (const char* name : {"b.bin", "a.bin", "B.bin", "c.txt", "odd[1].bin"})
    write_file_atomic(dir / name, "x");
  EXPECT_EQ(expand_patterns({dir / "c.*", dir / "?.bin"}),
            (Names{dir / "c.txt", dir / "B.bin", dir / "a.bin", dir / "b.bin"}));
  Names many;
  for (int i = 10; i < 50; ++i) write_file_atomic(many.emplace_back(dir / fmt::format("many-{}", i)), "");
  EXPECT_EQ(expand_patterns({dir / "many-*"}), many);
  EXPECT_EQ(expand_patterns({dir / "odd[1].bin"}), Names{dir / "odd[1].bin"});
  EXPECT_EQ(expand_patterns({}), Names{});
  EXPECT_TRUE(fails_with(ExitCode::data, {dir / "*.npz", "no file matches"}, [&] {
    expand_patterns({dir / "*.bin", dir / "*.npz"});
  }));
  EXPECT_TRUE(fails_with(ExitCode::data, {dir / "c.txt/*", "no file matches"},
                         [&] { expand_patterns({dir / "c.txt/*"}); }));
  EXPECT_TRUE(fails_with(ExitCode::data, {dir / "a.*", dir / "a.bin", "once"}, [&] {
    expand_patterns({dir / "*.bin", dir / "a.*"});
  }));
  EXPECT_TRUE(fails_with(ExitCode::data, {"empty path"}, [&] { expand_patterns({""}); }));
}

TEST(File, AFolderThatMayNotBeListedIsNotAMissingMatch) {
  const TempDir dir;
  make_directories(dir / "shut");
  ::chmod(dir.path().c_str(), 0755);
  ::chmod((dir / "shut").c_str(), 0);
  const auto result = run_in_child([&] {
    if (!test::become_unprivileged()) return 99;
    expand_patterns({dir / "*/*.bin"});
    return 0;
  });
  if (result.exit_code == 99) GTEST_SKIP() << "this process may not become an unprivileged user";
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("cannot list the folder " + dir / "shut"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace kata
