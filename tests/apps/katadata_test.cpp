// The program through its command line: what it writes, what it says, and its exit codes.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <tuple>

#include "base/file.h"
#include "support/run_program.h"
#include "support/temp_dir.h"

namespace kata {
namespace {

using test::ProgramOptions;
using test::ProgramResult;
using test::TempDir;

class Katadata : public ::testing::Test {
 protected:
  ProgramResult run(std::vector<std::string> arguments, const ProgramOptions& options = {}) {
    arguments.insert(arguments.begin(), KATA_BIN_DIR "/katadata");
    return test::run_program(arguments, options);
  }

  // Ends with the code, writes nothing to standard output, and says all the parts in one line.
  ::testing::AssertionResult refuses(int code, const std::vector<std::string>& parts,
                                     const std::vector<std::string>& arguments,
                                     const ProgramOptions& options = {}) {
    const ProgramResult result = run(arguments, options);
    if (result.exit_code != code || !result.out.empty())
      return ::testing::AssertionFailure() << "exit code " << result.exit_code << ", signal " << result.signal
                                           << ", output \"" << result.out << "\": " << result.err;
    if (!result.err.starts_with("katadata: error: ") ||
        std::count(result.err.begin(), result.err.end(), '\n') != 1 || !result.err.ends_with('\n'))
      return ::testing::AssertionFailure() << "expected one line: " << result.err;
    for (const std::string& part : parts)
      if (result.err.find(part) == std::string::npos)
        return ::testing::AssertionFailure() << "\"" << part << "\" is missing in: " << result.err;
    return ::testing::AssertionSuccess();
  }

  std::string put(const std::string& name, const std::string& text) {
    std::ofstream(dir / name, std::ios::binary) << text;
    return dir / name;
  }
  std::vector<std::string> tokenize_arguments(const std::string& input) {
    return {"tokenize", "--input", input, "--output", dir / "out"};
  }
  static std::vector<std::string> mqar_arguments(const std::string& out) {
    return {"synth", "mqar",   "--length",   "64",      "--pairs", "4",     "--examples",
            "1000",  "--seed", "2967327842", "--split", "test",    "--out", out};
  }
  // The arguments with the value of one option replaced.
  static std::vector<std::string> with(std::vector<std::string> arguments, const std::string& option,
                                       const std::string& value) {
    *(std::find(arguments.begin(), arguments.end(), option) + 1) = value;
    return arguments;
  }

  TempDir dir;
  std::string text = std::string(1500, 'a') + "\n\"q\" \xc3\xa9\n" + std::string(492, 'b');  // 2000 bytes
};

// ---- tokenize, detokenize, inspect ----

TEST_F(Katadata, TextBecomesShardsAndComesBack) {
  const ProgramResult made = run(tokenize_arguments(put("a.txt", text)));
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_NE(made.err.find("1900 bytes of text to train on, 100 to validate on"), std::string::npos)
      << made.err;
  const std::string train = dir / "out/train-000000.bin", validation = dir / "out/validation.bin";
  const ProgramResult back = run({"detokenize", train, validation});
  EXPECT_EQ(back.exit_code, 0) << back.err;
  EXPECT_EQ(back.out, text);
  EXPECT_EQ(run({"detokenize", validation}).out, text.substr(1900));

  const ProgramResult shown = run({"inspect", train, validation});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  for (const std::string& part :
       {train + ": token shard, 1900 uint16 tokens, 4824 bytes", std::string("ids    10 to 195"),
        validation + ": token shard, 100 uint16 tokens", std::string("ids    98 to 98")})
    EXPECT_NE(shown.out.find(part), std::string::npos) << part << " is missing in " << shown.out;
}

TEST_F(Katadata, StandardInputAndSeveralShards) {
  ProgramOptions options;
  options.input = text;
  auto arguments = tokenize_arguments("-");
  for (const char* more : {"--shard-tokens", "700", "--validation-fraction", "0", "--log-level", "warn"})
    arguments.push_back(more);
  const ProgramResult made = run(arguments, options);
  EXPECT_EQ(made.exit_code, 0);
  EXPECT_EQ(made.err, "");
  EXPECT_EQ(run({"detokenize", dir / "out/train-000000.bin", dir / "out/train-000001.bin",
                 dir / "out/train-000002.bin"})
                .out,
            text);
  EXPECT_FALSE(std::filesystem::exists(dir / "out/validation.bin"));
  EXPECT_TRUE(
      refuses(3, {"standard input: no text"}, with(tokenize_arguments("-"), "--output", dir / "other")));
}

TEST_F(Katadata, ReplacesOnlyOnDemand) {
  ASSERT_EQ(run(tokenize_arguments(put("a.txt", text))).exit_code, 0);
  EXPECT_TRUE(refuses(2, {dir / "out/train-000000.bin", "--overwrite"}, tokenize_arguments(dir / "a.txt")));
  auto again = tokenize_arguments(put("b.txt", std::string(500, 'z')));
  again.push_back("--overwrite");
  EXPECT_EQ(run(again).exit_code, 0);
  EXPECT_EQ(run({"detokenize", dir / "out/train-000000.bin"}).out, std::string(475, 'z'));
}

TEST_F(Katadata, InputsThatCannotBeUsed) {
  EXPECT_TRUE(refuses(3, {dir / "none", "No such file"}, tokenize_arguments(dir / "none")));
  EXPECT_TRUE(refuses(3, {dir.path(), "directory"}, tokenize_arguments(dir.path())));
  EXPECT_TRUE(refuses(3, {"a.txt/b", "Not a directory"}, tokenize_arguments(put("a.txt", text) + "/b")));
  EXPECT_TRUE(refuses(3, {"empty"}, tokenize_arguments("")));
  EXPECT_TRUE(refuses(2, {dir / "c.gz", "gzip -dc"}, tokenize_arguments(put("c.gz", "\x1f\x8b\x08"))));
  ProgramOptions packed;
  packed.input = "\x1f\x8b\x08";
  EXPECT_TRUE(
      refuses(2, {"standard input is compressed", "gzip -dc | before"}, tokenize_arguments("-"), packed));
  EXPECT_TRUE(refuses(3, {"to validate on"}, tokenize_arguments(put("short", "words"))));
  EXPECT_FALSE(std::filesystem::exists(dir / "out/train-000000.bin"));
}

TEST_F(Katadata, OutputsThatCannotBeWritten) {
  const std::string input = put("a.txt", text);
  EXPECT_TRUE(refuses(3, {"a.txt/out", "Not a directory"},
                      with(tokenize_arguments(input), "--output", input + "/out")));
  EXPECT_TRUE(refuses(3, {"a.txt"}, with(tokenize_arguments(input), "--output", input)));
  EXPECT_TRUE(refuses(3, {"empty"}, with(tokenize_arguments(input), "--output", "")));
  ProgramOptions full;
  full.file_size_limit = 3000;
  EXPECT_TRUE(refuses(3, {"train-000000.bin", "ulimit"}, tokenize_arguments(input), full));
  EXPECT_TRUE(std::filesystem::is_empty(dir / "out"));
}

TEST_F(Katadata, WithoutPermission) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  ProgramOptions nobody;
  nobody.user = 65534;
  std::filesystem::permissions(dir.path(), std::filesystem::perms::others_all,
                               std::filesystem::perm_options::add);
  const std::string input = put("a.txt", text);
  std::filesystem::permissions(input, std::filesystem::perms::owner_read);
  EXPECT_TRUE(refuses(3, {input, "Permission denied", "permissions"}, tokenize_arguments(input), nobody));
  const std::string readable = put("b.txt", text);
  std::filesystem::create_directory(dir / "closed");
  std::filesystem::permissions(dir / "closed", std::filesystem::perms::owner_all);
  EXPECT_TRUE(refuses(3, {dir / "closed", "Permission denied"},
                      with(tokenize_arguments(readable), "--output", dir / "closed/out"), nobody));
  EXPECT_TRUE(
      refuses(3, {dir / "closed", "Permission denied"}, mqar_arguments(dir / "closed/a.npz"), nobody));
}

TEST_F(Katadata, DamagedFilesAreRefused) {
  ASSERT_EQ(run(tokenize_arguments(put("a.txt", text))).exit_code, 0);
  const std::string good = read_file(dir / "out/validation.bin");
  const std::string cut = put("cut.bin", good.substr(0, good.size() - 1));
  std::string flipped = good;
  flipped[1025] = 1;  // 'b' becomes 98 + 256
  const std::string foreign = put("foreign.bin", flipped);
  for (const std::string command : {"inspect", "detokenize"}) {
    EXPECT_TRUE(refuses(3, {cut, "1223 bytes", "expected 1224", "truncated"}, {command, cut}));
    EXPECT_TRUE(refuses(3, {dir / "none.bin"}, {command, dir / "none.bin"}));
    EXPECT_TRUE(refuses(3, {"cut.bin/x.bin"}, {command, cut + "/x.bin"}));
    EXPECT_TRUE(refuses(3, {dir.path()}, {command, dir.path()}));
    EXPECT_TRUE(refuses(2, {"\"words\"", "bytes"}, {command, cut, "--tokenizer", "words"}));
  }
  EXPECT_TRUE(refuses(3, {foreign, "token 0", "354"}, {"detokenize", foreign}));
  EXPECT_EQ(run({"inspect", foreign}).exit_code, 0);
  EXPECT_TRUE(refuses(3, {"expected a token shard"}, {"inspect", dir / "a.txt"}));
}

TEST_F(Katadata, AFullOutputIsAnErrorAndAClosedOneIsNot) {
  ASSERT_EQ(run(tokenize_arguments(put("a.txt", std::string(1 << 20, 'x')))).exit_code, 0);
  const std::string shard = dir / "out/train-000000.bin", program = KATA_BIN_DIR "/katadata";
  const auto shell = [&](const std::string& command) {
    return test::run_program({"/bin/sh", "-c", command});
  };
  EXPECT_EQ(shell(program + " detokenize " + shard + " >/dev/full").exit_code, 3);
  EXPECT_EQ(shell(program + " inspect " + shard + " >/dev/full").exit_code, 3);
  const ProgramResult head =
      shell("(" + program + " detokenize " + shard + "; echo code $? >&2) | head -c 10");
  EXPECT_EQ(head.out, "xxxxxxxxxx");
  EXPECT_EQ(head.err, "code 0\n");
}

// ---- synth ----

TEST_F(Katadata, MqarAsArrays) {
  const std::string out = dir / "set.npz";
  const ProgramResult made = run(mqar_arguments(out));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const std::string first = read_file(out);
  // The checksums of this set as zoology makes it. A member is stored as its name, a header of 128 bytes, the
  // numbers.
  const std::map<std::string, std::string> sums = {{"inputs.npy", "f48dbe0ef6c9753d64bafd26f23503f4"},
                                                   {"labels.npy", "36e8ea5776aeebcc1ca7aa0608638abe"}};
  for (const auto& [name, sum] : sums) {
    const size_t at = first.find(name);
    ASSERT_NE(at, std::string::npos);
    const std::string raw = put("raw", first.substr(at + name.size() + 128, 1000 * 64 * 8));
    EXPECT_EQ(test::run_program({"/usr/bin/sha256sum", raw}).out.substr(0, 32), sum) << name;
  }
  const ProgramResult shown = run({"inspect", out});
  EXPECT_EQ(shown.exit_code, 0);
  for (const char* part :
       {"inputs  <i8 [1000, 64], 0 to ", "2365 5943 2147 6422", "labels", "split  <U5 [], \"test\""})
    EXPECT_NE(shown.out.find(part), std::string::npos) << shown.out;

  // The split is only recorded, --vocab is used.
  ASSERT_EQ(run(with(mqar_arguments(out), "--split", "train")).exit_code, 0);
  EXPECT_EQ(read_file(out).substr(0, 1000 * 64 * 8), first.substr(0, 1000 * 64 * 8));
  EXPECT_NE(run({"inspect", out}).out.find("\"train\""), std::string::npos);
  auto small = mqar_arguments(out);
  small.insert(small.end(), {"--vocab", "100"});
  ASSERT_EQ(run(small).exit_code, 0);
  EXPECT_NE(read_file(out), first);
}

TEST_F(Katadata, MqarThatCannotBeMade) {
  const std::string out = dir / "set.npz";
  const auto good = mqar_arguments(out);
  EXPECT_TRUE(refuses(2, {"length 63", "even"}, with(good, "--length", "63")));
  EXPECT_TRUE(refuses(2, {"pairs 17", "4 * pairs"}, with(good, "--pairs", "17")));
  auto vocab = good;
  vocab.insert(vocab.end(), {"--vocab", "64"});
  EXPECT_TRUE(refuses(2, {"vocab 64", "larger than the length"}, vocab));
  EXPECT_TRUE(refuses(2, {"4 GiB"}, with(good, "--examples", "9000000")));
  EXPECT_TRUE(refuses(2, {"1073741824"}, with(good, "--examples", "900000000")));
  for (const char* number : {"0", "-1", "010", "1e3", "", "ten", "99999999999999999999", "5.0"})
    EXPECT_TRUE(refuses(2, {"--examples", "whole number"}, with(good, "--examples", number))) << number;
  for (const char* seed : {"4294967296", "-1", "0x10"})
    EXPECT_TRUE(refuses(2, {"--seed", "0 to 4294967295"}, with(good, "--seed", seed)));
  EXPECT_EQ(run(with(good, "--seed", "4294967295")).exit_code, 0);
  EXPECT_EQ(run(with(good, "--seed", "0")).exit_code, 0);
  EXPECT_TRUE(refuses(2, {"--split", "train", "test"}, with(good, "--split", "valid")));
}

// The golden rows of zoology's forgetting_mqar, and the layouts of its own.
TEST_F(Katadata, OverwriteAsArrays) {
  const std::string out = dir / "set.npz";
  const std::vector<std::string> zoology = {"synth",  "overwrite",   "--length", "32",         "--pairs",
                                            "4",      "--rewritten", "2",        "--examples", "3",
                                            "--seed", "42",          "--vocab",  "100",        "--split",
                                            "test",   "--out",       out,        "--layout",   "zoology"};
  const ProgramResult made = run(zoology);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_NE(made.err.find("4 pairs, 2 of them bound 1 more times (zoology), vocabulary 100"),
            std::string::npos)
      << made.err;
  const auto numbers = [&](const std::string& name) {
    const std::string bytes = read_file(out);
    std::vector<int64_t> values(3 * 32);
    std::memcpy(values.data(), bytes.data() + bytes.find(name) + name.size() + 128, values.size() * 8);
    return values;
  };
  const auto inputs = numbers("inputs.npy"), labels = numbers("labels.npy");
  const std::vector<int64_t> context = {14, 96, 46, 87, 48, 89, 45, 53, 48, 51, 46, 84};
  EXPECT_TRUE(std::equal(context.begin(), context.end(), inputs.begin()));
  EXPECT_EQ(inputs[30], 48);
  EXPECT_EQ(labels[30], 51);
  EXPECT_EQ(labels[0], -100);
  EXPECT_EQ(labels[64 + 12], 86) << "the third example";
  const ProgramResult shown = run({"inspect", out});
  EXPECT_NE(shown.out.find("labels  <i8 [3, 32]"), std::string::npos) << shown.out;

  // block is what is left out; without --rewritten every key is rewritten.
  auto plain = zoology;
  plain.resize(plain.size() - 2);
  plain.erase(plain.begin() + 6, plain.begin() + 8);
  ASSERT_EQ(run(plain).exit_code, 0);
  const std::string block = read_file(out);
  for (const auto& [option, value, same] : {std::tuple{"--rewritten", "4", true},
                                            {"--layout", "block", true},
                                            {"--rewrites", "1", true},
                                            {"--rewritten", "3", false},
                                            {"--layout", "interleaved", false},
                                            {"--rewrites", "2", false}}) {
    auto with_option = plain;
    with_option.insert(with_option.end(), {option, value});
    ASSERT_EQ(run(with_option).exit_code, 0) << option;
    EXPECT_EQ(read_file(out) == block, same) << option << " " << value;
  }

  EXPECT_TRUE(refuses(2, {"overwrite: length 32, pairs 4, rewrites 1, rewritten 5", "1 to pairs"},
                      with(zoology, "--rewritten", "5")));
  EXPECT_TRUE(refuses(2, {"2 * (pairs + rewrites * rewritten)"}, with(zoology, "--length", "18")));
  EXPECT_TRUE(refuses(2, {"--layout", "interleaved"}, with(zoology, "--layout", "blocks")));
  auto twice = zoology;
  twice.insert(twice.end(), {"--rewrites", "2"});
  EXPECT_TRUE(refuses(2, {"zoology layout has exactly 1"}, twice));
  twice.back() = "0";
  EXPECT_TRUE(refuses(2, {"--rewrites", "whole number from 1"}, twice));
}

TEST_F(Katadata, ArraysThatCannotBeWritten) {
  put("file", "x");
  EXPECT_TRUE(refuses(3, {"file/a.npz", "Not a directory"}, mqar_arguments(dir / "file/a.npz")));
  EXPECT_TRUE(refuses(3, {"none/a.npz", "No such file"}, mqar_arguments(dir / "none/a.npz")));
  EXPECT_TRUE(refuses(3, {dir.path()}, mqar_arguments(dir.path())));
  EXPECT_TRUE(refuses(3, {}, mqar_arguments("")));
  ProgramOptions full;
  full.file_size_limit = 100'000;
  put("old.npz", "old");
  EXPECT_TRUE(refuses(3, {"old.npz"}, mqar_arguments(dir / "old.npz"), full));
  EXPECT_EQ(read_file(dir / "old.npz"), "old");
}

// ---- the command line ----

TEST_F(Katadata, AnswersQuestions) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{},
                                             {"tokenize"},
                                             {"inspect"},
                                             {"detokenize"},
                                             {"synth"},
                                             {"synth", "mqar"},
                                             {"synth", "overwrite"}}) {
    auto arguments = command;
    arguments.push_back("--help");
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_NE(result.out.find("Usage: katadata"), std::string::npos);
    EXPECT_EQ(result.err, "");
  }
  EXPECT_NE(run({"--help"}).out.find("Example"), std::string::npos);
  EXPECT_NE(run({"synth", "mqar", "--help"}).out.find("Example"), std::string::npos);
  const ProgramResult version = run({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_TRUE(version.out.starts_with("kata "));
}

TEST_F(Katadata, MisspeltArguments) {
  EXPECT_TRUE(refuses(2, {"subcommand"}, {}));
  EXPECT_TRUE(refuses(2, {"subcommand"}, {"synth"}));
  EXPECT_TRUE(refuses(2, {"tokenise", "did you mean tokenize?"}, {"tokenise"}));
  EXPECT_TRUE(refuses(2, {"mqr", "did you mean mqar?"}, {"synth", "mqr"}));
  EXPECT_TRUE(refuses(2, {"--inputs", "did you mean --input?"}, {"tokenize", "--inputs", "a"}));
  EXPECT_TRUE(refuses(2, {"unexpected argument --frobnicate"}, {"inspect", "a", "--frobnicate"}));
  EXPECT_TRUE(refuses(2, {"--output is required"}, {"tokenize", "--input", "a"}));
  EXPECT_TRUE(refuses(2, {"FILE is required"}, {"inspect"}));
  EXPECT_TRUE(refuses(2, {"loud", "debug"}, {"inspect", "a", "--log-level", "loud"}));
  auto arguments = tokenize_arguments(put("a.txt", text));
  arguments.insert(arguments.end(), {"--validation-fraction", ""});
  for (const char* fraction : {"nan", "1", "-0.1", "five", "inf", "0.1x"}) {
    arguments.back() = fraction;
    EXPECT_TRUE(refuses(2, {"--validation-fraction", "below 1"}, arguments)) << fraction;
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));
}

// The shipped corpus: text of the size and end that data/README.md states.
TEST_F(Katadata, TheCorpusThatShips) {
  const std::string command = "gzip -dc " KATA_SOURCE_DIR "/data/kjv.txt.gz | " KATA_BIN_DIR
                              "/katadata tokenize --input - --output " +
                              (dir / "out");
  const ProgramResult made = test::run_program({"/bin/sh", "-c", command});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_NE(made.err.find("3945544 bytes of text to train on, 207660 to validate on"), std::string::npos)
      << made.err;
  const std::string last = run({"detokenize", dir / "out/validation.bin"}).out;
  EXPECT_EQ(last.size(), 207660u);
  EXPECT_TRUE(last.ends_with("The grace of our Lord Jesus Christ be with you all. Amen.\n"));
  EXPECT_TRUE(
      run({"detokenize", dir / "out/train-000000.bin"}).out.starts_with("Genesis 1\n\nIn the beginning "));
}

}  // namespace
}  // namespace kata
