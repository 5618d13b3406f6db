#include "base/safetensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/errors.h"
#include "support/run_program.h"
#include "support/temp_dir.h"

namespace kata {
namespace {

using test::fails_with;
using test::TempDir;

// A file of this header and so many data bytes 0, 1, 2, ...
std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  bytes += header;
  for (size_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(i);
  return bytes;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, size_t begin,
                  size_t end) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, dtype, shape, begin,
                     end);
}

std::string object(const std::string& entries) {
  return fmt::format("{{{}}}", entries);
}

class Safetensors : public ::testing::Test {
 protected:
  TempDir dir;
  std::string path = dir / "x.safetensors";

  SafetensorsFile open(const std::string& bytes) {
    write_file_atomic(path, bytes);
    return SafetensorsFile(path);
  }
  // Opening is refused with a message that names the file and the parts.
  ::testing::AssertionResult refused(const std::string& bytes, std::vector<std::string> parts) {
    for (const std::string& part : parts) {
      const auto result = fails_with(ExitCode::data, {path, part}, [&] { open(bytes); });
      if (!result) return result;
    }
    return ::testing::AssertionSuccess();
  }
  ::testing::AssertionResult header_refused(const std::string& header, std::vector<std::string> parts,
                                            size_t data_bytes = 8) {
    return refused(file_of(header, data_bytes), std::move(parts));
  }
};

TEST_F(Safetensors, EveryTypeAndRankComesBackAsWritten) {
  std::vector<float> f = {1.5f, -0.0f, 3e38f, 1e-45f, 5, 6};
  std::vector<double> d = {1.0 / 3, -1e300};
  std::vector<int32_t> i32 = {-7};
  std::vector<int64_t> i64 = {INT64_MIN, INT64_MAX};
  std::vector<uint16_t> u16 = {65535, 1, 2};
  std::vector<uint8_t> u8 = {255, 0, 1};
  const NamedTensors written = {{"z \"quoted\" \xC3\xA9", Tensor(f.data(), DType::f32, {3, 1, 2})},
                                {"bytes", Tensor(u8.data(), DType::u8, {3})},  // what follows is unaligned
                                {"d", Tensor(d.data(), DType::f64, {2})},
                                {"scalar", Tensor(i32.data(), DType::i32, {})},
                                {"empty", Tensor(nullptr, DType::f32, {4, 0})},
                                {"i64", Tensor(i64.data(), DType::i64, {1, 1, 1, 2})},
                                {"u16", Tensor(u16.data(), DType::u16, {3})}};
  const FileSummary summary = write_safetensors(path, written, {{"format", "pt"}, {"a\nb", "\xE2\x82\xAC"}});
  const std::string bytes = read_file(path);
  EXPECT_EQ(summary.bytes, bytes.size());
  EXPECT_EQ(summary.crc32, crc32(bytes));
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u);
  EXPECT_EQ(bytes.size(), 8 + header + 24 + 3 + 16 + 4 + 16 + 6);
  EXPECT_TRUE(nlohmann::json::accept(bytes.substr(8, header)));

  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(), (TextMap{{"a\nb", "\xE2\x82\xAC"}, {"format", "pt"}}));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : written) names.push_back(name);
  EXPECT_EQ(file.names(), names);
  for (const auto& [name, tensor] : written) {
    std::vector<char> copy(tensor.bytes() + 1, 'g');
    file.read_into(name, Tensor(copy.data(), tensor.dtype(), tensor.shape()));
    EXPECT_EQ(copy.back(), 'g') << name;
    const auto* bytes_of = static_cast<const char*>(tensor.data());
    EXPECT_TRUE(std::equal(copy.begin(), copy.end() - 1, bytes_of, bytes_of + tensor.bytes())) << name;
    EXPECT_EQ(file.info(name).shape_text(), tensor.shape().str());
    EXPECT_EQ(file.bytes(name).size(), tensor.bytes());
  }
}

TEST_F(Safetensors, OurFilesHaveTheLayoutThatTheFormatDescribes) {
  std::vector<float> data = {1, 2};
  write_safetensors(path, {{"w", Tensor(data.data(), DType::f32, {2, 1})}}, {{"k", "v"}});
  std::string header = R"({"__metadata__":{"k":"v"},"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  EXPECT_EQ(read_file(path), std::string(reinterpret_cast<const char*>(&length), 8) + header +
                                 std::string("\0\0\x80\x3f\0\0\0\x40", 8));
  write_safetensors(path, {});
  EXPECT_EQ(read_file(path), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  EXPECT_TRUE(SafetensorsFile(path).names().empty());
}

TEST_F(Safetensors, AcceptsWhatTheFormatAllows) {
  EXPECT_TRUE(open(file_of("{}", 0)).names().empty());
  EXPECT_EQ(open(file_of(R"({"__metadata__":{"a":"b"}})", 0)).metadata().at("a"), "b");
  const auto file = open(
      file_of("{" + entry("late", "U8", "[2]", 6, 8) + " , " + entry("", "F16", "[1, 3]", 0, 6) + "}  \n ",
              8));  // any order, any white space, an empty name
  EXPECT_EQ(file.names(), (std::vector<std::string>{"", "late"}));
  EXPECT_EQ(file.bytes("late")[0], std::byte{6});
  EXPECT_EQ(open(file_of(object(entry("f4", "F4", "[2,8]", 0, 8)), 8)).info("f4").end, 8u);
  EXPECT_EQ(open(file_of(object(entry("f6", "F6_E2M3", "[4]", 0, 3)), 3)).info("f6").end, 3u);
  EXPECT_EQ(open(file_of(object(entry("s", "F64", "[]", 0, 8)), 8)).info("s").shape.size(), 0u);
  EXPECT_EQ(open(file_of(object(entry("deep", "U8", "[1,1,1,1,1,1,8]", 0, 8)), 8)).info("deep").shape.size(),
            7u);
  EXPECT_EQ(open(file_of(object(entry("e", "F32", "[0,9223372036854775807]", 0, 0)), 0)).info("e").end, 0u);
}

TEST_F(Safetensors, HalfPrecisionIsWidenedExactly) {
  const std::vector<std::pair<uint16_t, float>> halves = {
      {0x0000, 0.0f},     {0x3C00, 1.0f},        {0xC000, -2.0f},    {0x7BFF, 65504.0f},
      {0x0001, 0x1p-24f}, {0x83FF, -0x3ffp-24f}, {0x0400, 0x1p-14f}, {0x3555, 0x1.554p-2f},
      {0x7C00, INFINITY}, {0xFC00, -INFINITY}};
  std::string bytes;
  for (const auto& [bits, value] : halves) bytes.append(reinterpret_cast<const char*>(&bits), 2);
  for (uint16_t bits : {uint16_t{0x8000}, uint16_t{0x7E01}})
    bytes.append(reinterpret_cast<const char*>(&bits), 2);
  std::string text = file_of(object(entry("h", "F16", "[12]", 0, 24)), 0) + bytes;
  std::vector<float> read(12);
  open(text).read_into("h", Tensor(read.data(), DType::f32, {12}));
  for (size_t i = 0; i < halves.size(); ++i) EXPECT_EQ(read[i], halves[i].second) << i;
  EXPECT_TRUE(read[10] == 0 && std::signbit(read[10]));
  EXPECT_TRUE(std::isnan(read[11]));

  text = file_of(object(entry("b", "BF16", "[2]", 0, 4)), 0) + std::string("\x80\x3f\x49\xc0", 4);
  open(text).read_into("b", Tensor(read.data(), DType::f32, {2}));
  EXPECT_EQ(read[0], 1.0f);
  EXPECT_EQ(read[1], -3.140625f);

  const double doubles[] = {0.1, -1e300};
  text = file_of(object(entry("d", "F64", "[2]", 0, 16)), 0) +
         std::string(reinterpret_cast<const char*>(doubles), sizeof doubles);
  open(text).read_into("d", Tensor(read.data(), DType::f32, {2}));
  EXPECT_EQ(read[0], 0.1f);
  EXPECT_TRUE(std::isinf(read[1]));
}

TEST_F(Safetensors, ReadingAnotherShapeOrTypeNamesBoth) {
  std::vector<float> data(6);
  write_safetensors(path, {{"w", Tensor(data.data(), DType::f32, {2, 3})}});
  const SafetensorsFile file(path);
  const auto read = [&](const std::string& name, DType type, Shape shape) {
    return [&file, name, type, shape] {
      std::vector<double> to(6);
      file.read_into(name, Tensor(to.data(), type, shape));
    };
  };
  EXPECT_TRUE(fails_with(ExitCode::data, {path, "\"w\"", "expected F32 [3, 2]", "found F32 [2, 3]"},
                         read("w", DType::f32, {3, 2})));
  EXPECT_TRUE(fails_with(ExitCode::data, {"expected F32 [6]"}, read("w", DType::f32, {6})));
  EXPECT_TRUE(fails_with(ExitCode::data, {"expected F64 [2, 3]"}, read("w", DType::f64, {2, 3})));
  EXPECT_TRUE(fails_with(ExitCode::data, {path, "no tensor \"v\"", "\"w\""}, read("v", DType::f32, {2, 3})));
}

TEST_F(Safetensors, FilesOfTheWrongSizeAreRefused) {
  const std::string good = file_of(object(entry("a", "F32", "[2]", 0, 8)), 8);
  EXPECT_TRUE(refused("", {"has 0 bytes", "at least 8"}));
  EXPECT_TRUE(refused("1234567", {"has 7 bytes"}));
  EXPECT_TRUE(refused(good.substr(0, 20), {"the header ends at byte", "the file at 20"}));
  EXPECT_TRUE(refused(good.substr(0, good.size() - 1), {"take 8 bytes, the file holds 7"}));
  EXPECT_TRUE(refused(good + "x", {"1 bytes follow the last tensor"}));
  EXPECT_TRUE(
      refused(std::string("\x00\xe1\xf5\x05\0\0\0\0{}", 10), {"ends at byte 100000008"}));  // at the limit
  EXPECT_TRUE(refused(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10), {"100000001", "at most 100000000"}));
  EXPECT_TRUE(refused(std::string(8, '\xff') + "{}", {"at most 100000000"}));
  EXPECT_TRUE(refused(std::string(8, '\0'), {"does not begin with {"}));
}

TEST_F(Safetensors, HeadersThatAreNotTheRightJsonAreRefused) {
  const std::string good = entry("a", "F32", "[2]", 0, 8);
  EXPECT_TRUE(header_refused(" {" + good + "}", {"does not begin with {"}));
  EXPECT_TRUE(header_refused("\xEF\xBB\xBF{" + good + "}", {"does not begin with {"}));
  EXPECT_TRUE(header_refused("[]", {"does not begin with {"}));
  EXPECT_TRUE(header_refused("{" + good, {"not valid JSON"}));
  EXPECT_TRUE(header_refused("{" + good + "} x", {"not valid JSON"}));
  EXPECT_TRUE(header_refused("{" + good + ",}", {"not valid JSON"}));
  EXPECT_TRUE(header_refused("{" + good + std::string("}\0\0", 3), {"not valid JSON"}));
  EXPECT_TRUE(header_refused("{" + good + std::string("}\0{", 3), {"not valid JSON"}));
  EXPECT_TRUE(header_refused("{\"\xC3(\":1}", {"not UTF-8 at byte 10"}));
  for (const char* bad : {"\x80", "\xC0\xAF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82"})
    EXPECT_TRUE(header_refused("{\"" + std::string(bad) + "\":1}", {"not UTF-8 at byte 10"}));
  EXPECT_TRUE(header_refused(object(good + "," + good), {"\"a\" appears twice"}));
  EXPECT_TRUE(header_refused(R"({"__metadata__":{},"__metadata__":{}})", {"\"__metadata__\" appears twice"}));
  EXPECT_TRUE(header_refused(R"({"__metadata__":{"k":"1","k":"2"}})", {"field \"k\" twice"}));
  EXPECT_TRUE(header_refused(R"({"__metadata__":{"k":1}})", {"\"k\": expected a text, found 1"}));
  EXPECT_TRUE(header_refused(R"({"__metadata__":{"k":{}}})", {"expected a text, found an object"}));
  EXPECT_TRUE(header_refused(R"({"__metadata__":[]})", {"expected an object, found an array"}));
  EXPECT_TRUE(header_refused(R"({"a":null})", {"\"a\": expected an object, found null"}));
  EXPECT_TRUE(header_refused(R"({"a":)" + std::string(1000000, '['), {"found an array"}));
}

TEST_F(Safetensors, EntriesThatBreakARuleAreRefusedWithTheTensorsName) {
  const auto a = [](const std::string& fields) { return "{\"a\":{" + fields + "}}"; };
  EXPECT_TRUE(header_refused(a(R"("dtype":"F32","shape":[2])"), {"\"a\" has no field data_offsets"}));
  EXPECT_TRUE(header_refused(a(R"("dtype":"F32","data_offsets":[0,8])"), {"\"a\" has no field shape"}));
  EXPECT_TRUE(header_refused(a(R"("shape":[2],"data_offsets":[0,8])"), {"\"a\" has no field dtype"}));
  EXPECT_TRUE(header_refused(a(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])"),
                             {"field \"dtype\" twice"}));
  EXPECT_TRUE(
      header_refused(a(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1)"), {"unknown field \"x\""}));
  EXPECT_TRUE(
      header_refused(a(R"("dtype":3,"shape":[2],"data_offsets":[0,8])"), {"expected a text, found 3"}));
  EXPECT_TRUE(header_refused(a(R"("dtype":[],"shape":[2],"data_offsets":[0,8])"), {"found an array"}));
  EXPECT_TRUE(
      header_refused(a(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"), {"expected an array, found 2"}));
  for (const char* dim : {"-2", "2.0", "1e0", "\"2\"", "null", "true", "[2]", "{}", "18446744073709551616",
                          "9223372036854775808"})
    EXPECT_TRUE(header_refused(a(fmt::format(R"("dtype":"F32","shape":[{}],"data_offsets":[0,8])", dim)),
                               {"\"a\": shape: expected integers"}));
  for (const char* offsets : {"[]", "[0]"})
    EXPECT_TRUE(header_refused(a(fmt::format(R"("dtype":"F32","shape":[2],"data_offsets":{})", offsets)),
                               {"expected [begin, end]"}));
  for (const char* offsets : {"[0,8,9]", "[-1,8]", "[0,8.0]", "[0,[8]]"})
    EXPECT_TRUE(header_refused(a(fmt::format(R"("dtype":"F32","shape":[2],"data_offsets":{})", offsets)),
                               {"data_offsets: expected two integers"}));
  EXPECT_TRUE(header_refused(object(entry("a", "F33", "[2]", 0, 8)), {"\"a\"", "unknown dtype \"F33\""}));
  EXPECT_TRUE(header_refused(object(entry("a", "f32", "[2]", 0, 8)), {"unknown dtype \"f32\""}));
  EXPECT_TRUE(header_refused(object(entry("a", "F32", "[3]", 0, 8)), {"\"a\"", "needs 12 bytes", "hold 8"}));
  EXPECT_TRUE(header_refused(object(entry("a", "F4", "[3]", 0, 2)), {"whole byte"}, 2));
  EXPECT_TRUE(header_refused(object(entry("a", "F32", "[2]", 8, 0)), {"run backwards"}));
  EXPECT_TRUE(header_refused(object(entry("a", "U8", "[4294967296,4294967296]", 0, 8)), {"64 bits"}));
  EXPECT_TRUE(header_refused(object(entry("a", "F64", "[2305843009213693953]", 0, 8)), {"64 bits"}));
  EXPECT_TRUE(header_refused(object(entry("a", "U8", "[4294967296,4294967296,0]", 0, 0)), {"64 bits"}, 0));
  EXPECT_TRUE(header_refused(object(entry("b\\nc", "?", "[2]", 0, 8)), {R"("b\nc")"}));
  const std::string long_name(1000, 'n');
  EXPECT_TRUE(header_refused(object(entry(long_name, "?", "[2]", 0, 8)), {"\"nnn", "nnn...\""}));
}

TEST_F(Safetensors, DataMustBeTiledExactly) {
  const auto two = [&](size_t a0, size_t a1, size_t b0, size_t b1) {
    return object(entry("a", "U8", fmt::format("[{}]", a1 - a0), a0, a1) + "," +
                  entry("b", "U8", fmt::format("[{}]", b1 - b0), b0, b1));
  };
  EXPECT_EQ(open(file_of(two(0, 5, 5, 8), 8)).names().size(), 2u);
  EXPECT_EQ(open(file_of(two(3, 8, 0, 3), 8)).names()[0], "b");
  EXPECT_TRUE(header_refused(two(0, 5, 4, 8), {"\"b\" begins at byte 4", "expected 5", "overlaps"}));
  EXPECT_TRUE(header_refused(two(0, 8, 0, 8), {"\"b\" begins at byte 0", "expected 8", "overlaps"}));
  EXPECT_TRUE(header_refused(two(0, 8, 2, 4), {"\"b\"", "overlaps"}));
  EXPECT_TRUE(header_refused(two(0, 4, 5, 8), {"\"b\" begins at byte 5", "expected 4", "a gap"}));
  EXPECT_TRUE(header_refused(two(1, 5, 5, 8), {"\"a\" begins at byte 1", "expected 0", "a gap"}));
  EXPECT_TRUE(header_refused(two(0, 4, 4, 7), {"1 bytes follow"}));
  EXPECT_TRUE(header_refused(two(0, 5, 5, 9), {"take 9 bytes, the file holds 8"}));
  EXPECT_TRUE(header_refused(object(entry("e", "U8", "[0]", 3, 3) + "," + entry("a", "U8", "[8]", 0, 8)),
                             {"\"e\" begins at byte 3", "expected 8"}));
  EXPECT_TRUE(header_refused(
      object(entry("a", "U8", "[8]", 18446744073709551608ull, 18446744073709551615ull)), {"needs 8 bytes"}));
}

// Reads everything that a file offers; an Error(data) is the only other way out.
bool reads_or_refuses(const std::string& path) {
  try {
    const SafetensorsFile file(path);
    uint64_t sum = 0, bytes = 0;
    for (const std::string& name : file.names()) {
      for (std::byte b : file.bytes(name)) sum += static_cast<uint64_t>(b);
      bytes += file.bytes(name).size();
      std::vector<float> to(64);
      try {
        file.read_into(name, Tensor(to.data(), DType::f32, {2, 3}));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::data);
      }
    }
    EXPECT_LE(bytes, std::filesystem::file_size(path));
    EXPECT_LE(sum, 255 * bytes);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data) << error.what();
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    return false;
  }
}

TEST_F(Safetensors, NoMutationOfAFileEscapesTheChecks) {
  std::vector<float> f = {1, 2, 3, 4, 5, 6};
  std::vector<uint8_t> u = {1, 2, 3};
  write_safetensors(path,
                    {{"w", Tensor(f.data(), DType::f32, {2, 3})},
                     {"u", Tensor(u.data(), DType::u8, {3})},
                     {"e", Tensor(nullptr, DType::i64, {0})}},
                    {{"k", "v"}});
  const std::string good = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  // Plain writes to a new file each: atomic and overwriting ones wait for the disk.
  const auto outcome = [&](const std::string& bytes) {
    std::filesystem::remove(path);
    FILE* file = std::fopen(path.c_str(), "wb");
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    std::fclose(file);
    return reads_or_refuses(path);
  };
  ASSERT_TRUE(outcome(good));
  for (size_t i = 0; i < 8 + header; ++i) {
    std::string bad = good;
    for (int bit = 0; bit < 8; ++bit) {
      bad[i] = static_cast<char>(good[i] ^ (1 << bit));
      const bool read = outcome(bad);
      EXPECT_FALSE(read && i < 8) << "length byte " << i << " bit " << bit;
    }
    for (const char other : {'\0', '"', '{', '}', '[', ']', ',', ':', '9', '-', '\\', ' ', '\xff'}) {
      bad[i] = other;
      outcome(bad);
    }
    outcome(good.substr(0, i) + good.substr(i + 1));        // a byte lost
    outcome(good.substr(0, i) + good[i] + good.substr(i));  // a byte twice
  }
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(outcome(good.substr(0, length))) << length;
  for (size_t extra : {1, 8, 4096}) EXPECT_FALSE(outcome(good + std::string(extra, '\0'))) << extra;
}

TEST_F(Safetensors, AFullDiskIsAnErrorAndLeavesTheOldFile) {
  write_file_atomic(path, "old");
  const auto result = test::run_in_child([&] {
    test::limit_file_size(1 << 16);
    std::vector<float> data(1 << 16);
    write_safetensors(path, {{"w", Tensor(data.data(), DType::f32, {1 << 16})}});
    return 0;
  });
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("after 65536 of 2622"), std::string::npos)
      << result.err;  // 256 KiB and the header
  EXPECT_EQ(read_file(path), "old");
}

TEST_F(Safetensors, OurOwnFaultsAreChecks) {
  std::vector<float> data(4);
  const Tensor whole(data.data(), DType::f32, {2, 2});
  EXPECT_THROW(write_safetensors(path, {{"a", whole}, {"a", whole}}), std::logic_error);
  EXPECT_THROW(write_safetensors(path, {{"__metadata__", whole}}), std::logic_error);
  EXPECT_THROW(write_safetensors(path, {{"a", whole.columns(0, 1)}}), std::logic_error);
}

}  // namespace
}  // namespace kata
