#include "base/safetensors_set.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/errors.h"
#include "support/temp_dir.h"

namespace kata {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::fails_with;

class SafetensorsSetTest : public ::testing::Test {
 protected:
  test::TempDir dir;
  const std::string folder = dir.path(), index_path = dir / "model.safetensors.index.json";
  std::vector<float> data = {1, 2, 3, 4, 5, 6};
  const NamedTensors tensors = {{"a", Tensor(data.data(), DType::f32, {2})},
                                {"b", Tensor(data.data() + 1, DType::f32, {3})},
                                {"c", Tensor(data.data() + 2, DType::f32, {1, 4})},
                                {"d", Tensor(data.data() + 5, DType::f32, {1})}};

  void write_index(const json& index) { write_file_atomic(index_path, index.dump()); }
  json index() const { return json::parse(read_file(index_path)); }
  ::testing::AssertionResult refused(const std::vector<std::string>& parts) {
    return fails_with(ExitCode::data, parts, [&] { SafetensorsSet set(folder); });
  }
  // The index of a good set, changed.
  ::testing::AssertionResult index_refused(const std::function<void(json&)>& change,
                                           const std::vector<std::string>& parts) {
    write_safetensors_set(folder, tensors, 20);
    json changed = index();
    change(changed);
    write_index(changed);
    return refused(parts);
  }
};

TEST_F(SafetensorsSetTest, OneFileOrSeveralHoldTheSame) {
  for (const auto& [limit, files] : {std::pair<uint64_t, size_t>{40, 1}, {39, 2}, {20, 2}, {16, 4}, {1, 4}}) {
    test::TempDir other;
    write_safetensors_set(other.path(), tensors, limit, {{"format", "pt"}});
    size_t found = 0;
    for (const auto& entry : fs::directory_iterator(other.path()))
      found += entry.path().extension() == ".safetensors";
    EXPECT_EQ(found, files) << limit;
    const SafetensorsSet set(other.path());
    EXPECT_EQ(set.names(), (std::vector<std::string>{"a", "b", "c", "d"}));
    for (const auto& [name, tensor] : tensors) {
      std::vector<float> copy(static_cast<size_t>(tensor.numel()));
      set.file(name).read_into(name, Tensor(copy.data(), DType::f32, tensor.shape()));
      EXPECT_TRUE(std::equal(copy.begin(), copy.end(), tensor.as<float>())) << name;
      EXPECT_EQ(set.file(name).metadata().at("format"), "pt");
    }
    EXPECT_TRUE(fails_with(ExitCode::data, {set.path(), "\"e\" is missing"}, [&] { set.file("e"); }));
  }
}

TEST_F(SafetensorsSetTest, TheIndexIsTheOneOfOtherTools) {
  write_safetensors_set(folder, tensors, 20);
  EXPECT_EQ(index(), json::parse(R"({"metadata": {"total_size": 40},
    "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00001-of-00002.safetensors",
                   "c": "model-00002-of-00002.safetensors", "d": "model-00002-of-00002.safetensors"}})"));
  EXPECT_EQ(SafetensorsSet(folder).path(), index_path);
  write_safetensors(dir / "model.safetensors", {tensors[0]});  // stands before an index
  EXPECT_EQ(SafetensorsSet(folder).names(), std::vector<std::string>{"a"});
}

TEST_F(SafetensorsSetTest, FoldersWithoutWeights) {
  EXPECT_TRUE(refused({folder, "holds neither model.safetensors nor model.safetensors.index.json"}));
  EXPECT_TRUE(fails_with(ExitCode::data, {folder + "/x", "expected a folder"},
                         [&] { SafetensorsSet(folder + "/x"); }));
}

TEST_F(SafetensorsSetTest, TheIndexMustBeOne) {
  const std::string file = "model-00001-of-00002.safetensors";
  for (const char* text : {"", "[]", "{", R"({"weight_map": []})", R"({"metadata": {}})"}) {
    write_file_atomic(index_path, text);
    EXPECT_TRUE(refused({index_path})) << text;
  }
  EXPECT_TRUE(
      index_refused([](json& i) { i["weight_map"]["a"] = 1; }, {index_path, "\"a\"", "found number"}));
  for (const char* name : {"", "..", "../x.safetensors", "/x.safetensors", ".x", "sub/x"})
    EXPECT_TRUE(index_refused([&](json& i) { i["weight_map"]["a"] = name; },
                              {index_path, "\"a\"", "no name of a file"}));
  EXPECT_TRUE(index_refused([](json& i) { i["metadata"] = 1; }, {index_path, "total_size"}));
  EXPECT_TRUE(index_refused([](json& i) { i["metadata"]["total_size"] = "40"; }, {index_path, "total_size"}));
  write_file_atomic(index_path, R"({"weight_map": {"a": ")" + file + R"(", "a": ")" + file + R"("}})");
  EXPECT_TRUE(refused({index_path, "weight_map.a: this key stands twice"}));
}

TEST_F(SafetensorsSetTest, IndexAndFilesMustAgree) {
  const std::string first = "model-00001-of-00002.safetensors", second = "model-00002-of-00002.safetensors";
  EXPECT_TRUE(index_refused([](json& i) { i["weight_map"]["a"] = "gone.safetensors"; },
                            {index_path, "gone.safetensors", "is missing"}));
  EXPECT_TRUE(index_refused([&](json& i) { i["weight_map"]["a"] = second; },
                            {folder + "/" + first, "\"a\"", second}));
  EXPECT_TRUE(index_refused([&](json& i) { i["weight_map"]["e"] = second; },
                            {index_path, "tensor \"e\" is not in", second}));
  EXPECT_TRUE(index_refused([](json& i) { i["weight_map"].erase("d"); },
                            {folder + "/" + second, "\"d\"", "nowhere"}));
  write_safetensors_set(folder, tensors, 20);
  write_safetensors(dir / second, {tensors[0], tensors[2], tensors[3]});  // "a" in both
  EXPECT_TRUE(refused({folder + "/" + second, "\"a\"", first}));
  write_safetensors_set(folder, tensors, 20);
  fs::resize_file(dir / second, fs::file_size(dir / second) - 1);
  EXPECT_TRUE(refused({folder + "/" + second, "truncated"}));
}

TEST_F(SafetensorsSetTest, AnotherTotalIsOnlyAWarning) {
  write_safetensors_set(folder, tensors, 20);
  json changed = index();
  changed["metadata"]["total_size"] = 44.0;
  write_index(changed);
  EXPECT_EQ(SafetensorsSet(folder).names().size(), 4u);
}

}  // namespace
}  // namespace kata
