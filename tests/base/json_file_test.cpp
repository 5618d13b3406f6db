#include "base/json_file.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace kata {
namespace {

class JsonFile : public ::testing::Test {
 protected:
  test::TempDir dir;
  std::string path = dir / "x.json";

  nlohmann::json read(const std::string& text) {
    write_file_atomic(path, text);
    return read_json_object(path, 1000);
  }
  ::testing::AssertionResult refused(const std::string& text, const std::string& part) {
    return test::fails_with(ExitCode::data, {path, part}, [&] { read(text); });
  }
};

TEST_F(JsonFile, ObjectsAreRead) {
  EXPECT_EQ(read("{}"), nlohmann::json::object());
  EXPECT_EQ(read(R"({"a": {"k": 1}, "b": [{"k": 2}, {"k": 3}]})").at("b").at(1).at("k"), 3);
  EXPECT_EQ(read("{\"a\":\"" + std::string(992, 'x') + "\"}").size(), 1u);
  EXPECT_EQ(read("{\"a\":" + std::string(63, '[') + std::string(63, ']') + "}").size(), 1u);
}

TEST_F(JsonFile, EverythingElseIsRefused) {
  EXPECT_TRUE(refused("{\"a\":\"" + std::string(993, 'x') + "\"}", "has 1001 bytes, at most 1000"));
  EXPECT_TRUE(refused("{\"a\":" + std::string(64, '[') + std::string(64, ']') + "}", "at most 64 are read"));
  EXPECT_TRUE(refused(std::string(900, '['), "at most 64 are read"));
  EXPECT_TRUE(refused(R"({"a": 1, "a": 2})", ": a: this key stands twice"));
  EXPECT_TRUE(refused(R"({"x": [{"a": 1, "a": 2}]})", ": x.a: this key stands twice"));
  EXPECT_TRUE(refused("{\"a\": }", "no JSON at line 1, in a"));
  EXPECT_TRUE(refused("{\"a\": \"\xC3(\"}", ""));
  EXPECT_TRUE(refused("{\"a\": 1e999}", ""));
  EXPECT_TRUE(refused(std::string("{}\0", 3), "a zero byte at 2"));
  EXPECT_TRUE(refused("", ""));
  EXPECT_TRUE(refused("[1]", "expected an object, found array"));
  EXPECT_TRUE(
      test::fails_with(ExitCode::data, {dir / "none.json"}, [&] { read_json_object(dir / "none.json", 9); }));
}

}  // namespace
}  // namespace kata
