#include "data/shard.h"

#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <unistd.h>
#include <vector>

#include "base/parallel.h"
#include "base/philox.h"
#include "support/errors.h"
#include "support/run_program.h"
#include "support/temp_dir.h"

namespace kata {
namespace {

using test::fails_with;
using test::TempDir;

std::vector<int32_t> random_tokens(size_t n, uint64_t below) {
  const Philox random(1, stream_test);
  std::vector<int32_t> tokens(n);
  for (size_t i = 0; i < n; ++i) tokens[i] = static_cast<int32_t>(random.below(i, below));
  return tokens;
}

std::vector<int32_t> all_of(const Shard& shard) {
  std::vector<int32_t> tokens(static_cast<size_t>(shard.tokens()));
  shard.read(0, shard.tokens(), tokens.data());
  return tokens;
}

// A file with a header of these words and these bytes behind it.
std::string raw(std::vector<uint32_t> header, const std::string& payload) {
  header.resize(256);
  std::string bytes(1024, '\0');
  std::memcpy(bytes.data(), header.data(), bytes.size());
  return bytes + payload;
}

class ShardFile : public ::testing::Test {
 protected:
  std::string write(const std::string& bytes) {
    std::filesystem::remove(path);  // some tests write thousands, and cutting a file may wait for the disk
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  ::testing::AssertionResult refused(const std::string& bytes, std::vector<std::string> parts) {
    parts.push_back(path);
    return fails_with(ExitCode::data, parts, [&] { Shard shard(write(bytes)); });
  }
  TempDir dir;
  std::string path = dir / "tokens.bin";
};

TEST_F(ShardFile, TheBytesOfBothFlavours) {
  write_shard(path, std::vector<int32_t>{1, 256, 65535}, 65536);
  EXPECT_EQ(read_file(path), raw({20240520, 1, 3}, std::string("\x01\x00\x00\x01\xff\xff", 6)));
  write_shard(path, std::vector<int32_t>{1, 65536}, 65537);
  EXPECT_EQ(read_file(path), raw({20240801, 7, 2}, std::string("\x01\x00\x00\x00\x00\x00\x01\x00", 8)));
}

TEST_F(ShardFile, ReadsWhatWasWritten) {
  for (const int64_t vocab : {256, 65536, 65537, 200000}) {
    const auto tokens = random_tokens(3000, static_cast<uint64_t>(vocab));
    write_shard(path, tokens, vocab);
    const Shard shard(path);
    EXPECT_EQ(shard.tokens(), 3000);
    EXPECT_EQ(shard.token_bytes(), vocab <= 65536 ? 2 : 4);
    EXPECT_EQ(all_of(shard), tokens);
    std::vector<int32_t> part(100);
    shard.read(2900, 100, part.data());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), tokens.end() - 100));
    shard.read(3000, 0, part.data());
    const auto [low, high] = std::minmax_element(tokens.begin(), tokens.end());
    EXPECT_EQ(shard.ids().smallest, static_cast<uint32_t>(*low));
    EXPECT_EQ(shard.ids().largest, static_cast<uint32_t>(*high));
  }
}

TEST_F(ShardFile, OneTokenIsEnough) {
  write_shard(path, std::vector<int32_t>{9}, 256);
  EXPECT_EQ(all_of(Shard(path)), std::vector<int32_t>{9});
}

TEST_F(ShardFile, ReadingOutsideIsOurFault) {
  write_shard(path, std::vector<int32_t>{1, 2, 3}, 256);
  const Shard shard(path);
  int32_t out[4];
  EXPECT_THROW(shard.read(1, 3, out), std::logic_error);
  EXPECT_THROW(shard.read(-1, 1, out), std::logic_error);
  EXPECT_THROW(write_shard(path, std::vector<int32_t>{1, 300}, 256), std::logic_error);
  EXPECT_THROW(write_shard(path, std::vector<int32_t>{}, 256), std::logic_error);
  EXPECT_EQ(all_of(Shard(path)), (std::vector<int32_t>{1, 2, 3}));  // the old file survived
}

TEST_F(ShardFile, RefusesAWrongHeader) {
  const std::string two(2, 'a');
  EXPECT_TRUE(refused(raw({20240522, 1, 1}, two), {"magic 20240522", "20240520", "20240801", "tokenize"}));
  EXPECT_TRUE(refused(raw({20240520, 7, 1}, two), {"version 7", "magic 20240520", "expected version 1"}));
  EXPECT_TRUE(refused(raw({20240801, 1, 1}, two + two), {"version 1", "expected version 7"}));
  EXPECT_TRUE(refused(raw({20240520, 1, 0}, ""), {"0 tokens"}));
  EXPECT_TRUE(refused(raw({20240520, 1, 0x80000000u}, two), {"-2147483648 tokens", "2147483647"}));
  EXPECT_TRUE(refused(raw({__builtin_bswap32(20240520), 1u << 24, 1u << 24}, two), {"big-endian"}));
  EXPECT_TRUE(refused(raw({__builtin_bswap32(20240801), 7u << 24, 1u << 24}, two), {"big-endian"}));
}

TEST_F(ShardFile, RefusesAnyOtherLength) {
  const std::string six(6, 'a');
  EXPECT_TRUE(
      refused(raw({20240520, 1, 3}, six + "a"), {"1031 bytes", "expected 1030", "3 uint16", "too long"}));
  EXPECT_TRUE(refused(raw({20240520, 1, 3}, six.substr(1)), {"1029 bytes", "expected 1030", "truncated"}));
  EXPECT_TRUE(refused(raw({20240520, 1, 4}, six), {"expected 1032", "truncated"}));
  EXPECT_TRUE(refused(raw({20240520, 1, 2147483647}, six), {"expected 4294968318", "truncated"}));
  EXPECT_TRUE(refused(raw({20240801, 7, 2147483647}, six), {"expected 8589935612", "truncated"}));
  EXPECT_TRUE(refused(raw({20240801, 7, 3}, six), {"1030 bytes", "expected 1036", "uint32", "truncated"}));
  EXPECT_TRUE(refused("", {"0 bytes", "1024"}));
  EXPECT_TRUE(refused(raw({20240520, 1, 3}, "").substr(0, 1023), {"1023 bytes", "1024"}));
}

TEST_F(ShardFile, AnyDamagedByteOfTheHeaderIsSeen) {
  write_shard(path, random_tokens(50, 256), 256);
  const std::string good = read_file(path);
  for (size_t i = 0; i < 1024; ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    EXPECT_TRUE(refused(bad, {})) << i;
  }
}

TEST_F(ShardFile, AnyTruncationIsSeen) {
  write_shard(path, random_tokens(50, 256), 256);
  const std::string good = read_file(path);
  for (size_t n = 0; n < good.size(); ++n) EXPECT_TRUE(refused(good.substr(0, n), {})) << n;
}

TEST_F(ShardFile, FilesThatCannotBeRead) {
  const auto open = [](const std::string& name) { return [name] { Shard shard(name); }; };
  EXPECT_TRUE(fails_with(ExitCode::data, {dir / "none.bin", "No such file"}, open(dir / "none.bin")));
  EXPECT_TRUE(fails_with(ExitCode::data, {dir.path(), "directory"}, open(dir.path())));
  write("x");
  EXPECT_TRUE(fails_with(ExitCode::data, {path + "/a.bin"}, open(path + "/a.bin")));
}

TEST_F(ShardFile, FindsTheFirstIdThatIsTooLarge) {
  const size_t n = 3'000'000;  // several scan blocks
  std::vector<int32_t> tokens(n, 255);
  tokens[2'500'000] = 300;
  tokens[1'234'567] = 256;
  write_shard(path, tokens, 1000);
  const Shard shard(path);
  for (const int threads : {1, 2}) {
    set_thread_count(threads);
    EXPECT_TRUE(fails_with(ExitCode::data, {path, "token 1234567", "id 256", "vocabulary of 256"},
                           [&] { shard.check_ids(256); }));
  }
  EXPECT_TRUE(fails_with(ExitCode::data, {"token 2500000", "id 300"}, [&] { shard.check_ids(300); }));
  EXPECT_NO_THROW(shard.check_ids(301));
  EXPECT_NO_THROW(shard.check_ids(int64_t{1} << 31));
}

TEST_F(ShardFile, TheLastIdOfAWidthIsChecked) {
  write_shard(path, std::vector<int32_t>{65535}, 65536);
  EXPECT_TRUE(fails_with(ExitCode::data, {"65535"}, [&] { Shard(path).check_ids(65535); }));
  EXPECT_NO_THROW(Shard(path).check_ids(65536));
  const Shard wide(write(raw({20240801, 7, 1}, std::string("\x00\x00\x00\x80", 4))));
  EXPECT_TRUE(fails_with(ExitCode::data, {"2147483648"}, [&] { wide.check_ids(int64_t{1} << 31); }));
  EXPECT_TRUE(fails_with(ExitCode::data, {"2147483648"}, [&] { all_of(wide); }));
  EXPECT_EQ(wide.ids().largest, 2147483648u);
}

TEST_F(ShardFile, AFullDiskLeavesTheOldShard) {
  write_shard(path, std::vector<int32_t>{1, 2, 3}, 256);
  const auto result = test::run_in_child([&] {
    test::limit_file_size(2000);
    write_shard(path, random_tokens(10000, 256), 256);
    return 0;
  });
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::data));
  EXPECT_NE(result.err.find("tokens.bin"), std::string::npos) << result.err;
  EXPECT_EQ(all_of(Shard(path)), (std::vector<int32_t>{1, 2, 3}));
}

// The largest shards have offsets beyond 2^31 and 2^32: a file with a hole, which takes no space.
TEST_F(ShardFile, LargeOffsets) {
  const int64_t n = largest_shard;
  const std::string header = raw({20240801, 7, static_cast<uint32_t>(n)}, "");
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_GE(file, 0);
  const uint32_t last = 77;
  const bool written = ::pwrite(file, header.data(), header.size(), 0) == 1024 &&
                       ::pwrite(file, &last, 4, 1024 + 4 * (n - 1)) == 4;
  ::close(file);
  if (!written) GTEST_SKIP() << "this file system holds no sparse file of 8 GiB";
  const Shard shard(path);
  int32_t tail[2];
  shard.read(n - 2, 2, tail);
  EXPECT_EQ(tail[0], 0);
  EXPECT_EQ(tail[1], 77);
}

}  // namespace
}  // namespace kata
