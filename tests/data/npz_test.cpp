#include "data/npz.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "support/errors.h"
#include "support/run_program.h"
#include "support/temp_dir.h"

namespace kata {
namespace {

using test::fails_with;
using test::TempDir;

NpzArray numbers(const std::string& name, std::vector<int64_t> shape, const std::vector<int64_t>& values) {
  return {name, "<i8", std::move(shape),
          [values](const NpzArray::Sink& sink) { sink(values.data(), values.size() * sizeof(int64_t)); }};
}

NpzArray word(const std::string& name, const std::u32string& text) {
  return {name, fmt::format("<U{}", text.size()), {}, [text](const NpzArray::Sink& sink) {
            for (const char32_t c : text) sink(&c, sizeof c);
          }};
}

std::vector<int64_t> values_of(const NpzFile::Entry& entry) {
  std::vector<int64_t> values(entry.bytes.size() / sizeof(int64_t));
  std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
  return values;
}

class Npz : public ::testing::Test {
 protected:
  void write_sample() {
    std::vector<int64_t> a(15);
    std::iota(a.begin(), a.end(), -7);
    write_npz(path, {numbers("inputs", {3, 5}, a), numbers("labels", {4}, {1, -100, 3, 4}),
                     numbers("empty", {0, 7}, {}), word("split", U"train")});
  }
  void put(const std::string& bytes) {
    std::filesystem::remove(path);  // some tests write thousands, and cutting a file may wait for the disk
    std::ofstream(path, std::ios::binary) << bytes;
  }
  TempDir dir;
  std::string path = dir / "set.npz";
};

TEST_F(Npz, ReadsWhatWasWritten) {
  write_sample();
  const NpzFile file(path);
  const auto& e = file.entries();
  ASSERT_EQ(e.size(), 4u);
  EXPECT_EQ(e[0].name, "inputs");
  EXPECT_EQ(e[0].dtype, "<i8");
  EXPECT_EQ(e[0].shape, (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(values_of(e[0]).front(), -7);
  EXPECT_EQ(values_of(e[0]).back(), 7);
  EXPECT_EQ(e[1].shape, std::vector<int64_t>{4});
  EXPECT_EQ(values_of(e[1]), (std::vector<int64_t>{1, -100, 3, 4}));
  EXPECT_EQ(e[2].shape, (std::vector<int64_t>{0, 7}));
  EXPECT_TRUE(e[2].bytes.empty());
  EXPECT_EQ(e[3].dtype, "<U5");
  EXPECT_TRUE(e[3].shape.empty());
  EXPECT_EQ(static_cast<char>(e[3].bytes[4]), 'r');
}

// The layout byte by byte, as the two formats define it.
TEST_F(Npz, TheBytesOfAMember) {
  write_npz(path, {numbers("a", {2}, {1, 2})});
  const std::string bytes = read_file(path);
  EXPECT_EQ(bytes.substr(0, 4), "PK\x03\x04");
  EXPECT_EQ(bytes.substr(30, 5), "a.npy");
  const std::string member = bytes.substr(35, 128 + 16);
  EXPECT_EQ(member.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  EXPECT_EQ(member.substr(10, 54), "{'descr': '<i8', 'fortran_order': False, 'shape': (2,)");
  EXPECT_EQ(member[127], '\n');
  EXPECT_EQ(member.substr(128), std::string("\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(bytes.size(), 35 + member.size() + 46 + 5 + 22);
}

TEST_F(Npz, TheSameArraysGiveTheSameBytes) {
  write_sample();
  const std::string first = read_file(path);
  write_sample();
  EXPECT_EQ(read_file(path), first);
}

TEST_F(Npz, AnyFlippedBitIsSeenOrHarmless) {
  write_sample();
  const std::string good = read_file(path);
  int seen = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    put(bad);
    try {
      const NpzFile file(path);
      ASSERT_LE(file.entries().size(), 4u);
      for (const auto& entry : file.entries())
        for (const std::byte b : entry.bytes) seen += b == std::byte{255};  // touch all
    } catch (const Error& error) {
      ++seen;
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
    }
  }
  EXPECT_GT(seen, static_cast<int>(good.size() / 2));
}

TEST_F(Npz, AnyTruncationIsSeen) {
  write_sample();
  const std::string good = read_file(path);
  for (size_t n = 0; n < good.size(); ++n) {
    put(good.substr(0, n));
    EXPECT_TRUE(fails_with(ExitCode::data, {path}, [&] { NpzFile file(path); })) << n;
  }
}

TEST_F(Npz, DamagedElementsDoNotMatchTheChecksum) {
  write_sample();
  std::string bytes = read_file(path);
  bytes[200] = static_cast<char>(bytes[200] ^ 1);
  put(bytes);
  EXPECT_TRUE(fails_with(ExitCode::data, {path, "inputs.npy", "checksum"}, [&] { NpzFile file(path); }));
}

TEST_F(Npz, FourGigabytesAreRefusedBeforeAnythingIsMade) {
  const auto never = [](const NpzArray::Sink&) { FAIL() << "elements were asked for"; };
  const auto refused = [&](std::vector<int64_t> shape) {
    return fails_with(ExitCode::usage, {path, "4 GiB", "fewer examples"}, [&] {
      write_npz(path, {{"inputs", "<i8", shape, never}});
    });
  };
  EXPECT_TRUE(refused({1 << 20, 512}));
  EXPECT_TRUE(refused({int64_t{1} << 62, int64_t{1} << 62}));
  EXPECT_TRUE(fails_with(ExitCode::usage, {"4 GiB"}, [&] {
    check_npz_size(path, {{"a", "<i8", {1 << 28}, never}, {"b", "<i8", {1 << 28}, never}});
  }));
  EXPECT_NO_THROW(check_npz_size(path, {{"a", "<i8", {1 << 28}, never}}));
  EXPECT_NO_THROW(check_npz_size(path, {{"a", "<i8", {int64_t{1} << 62, int64_t{1} << 62, 0}, never}}));
}

TEST_F(Npz, AFullDiskLeavesTheOldFile) {
  write_sample();
  const std::string good = read_file(path);
  const auto result = test::run_in_child([&] {
    test::limit_file_size(1000);
    write_npz(path, {numbers("inputs", {1000}, std::vector<int64_t>(1000))});
    return 0;
  });
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::data));
  EXPECT_EQ(read_file(path), good);
}

TEST(NpyType, BytesOfAnElement) {
  EXPECT_EQ(npy_item_bytes("<i8"), 8);
  EXPECT_EQ(npy_item_bytes("|u1"), 1);
  EXPECT_EQ(npy_item_bytes("<f4"), 4);
  EXPECT_EQ(npy_item_bytes("<U5"), 20);
  for (const char* bad : {"", "<i", "<i0", "<i16", ">i8", "<x8", "<i8x", "<i-8", "|O"})
    EXPECT_EQ(npy_item_bytes(bad), 0) << bad;
}

}  // namespace
}  // namespace kata
