// tokenizer.json: the ids and texts of the tokenizers library (fixtures by
// scripts/make_tokenizer_fixtures.py), and every fault of a file.
#include "data/hf_tokenizer.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "data/unicode.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace kata {
namespace {

using nlohmann::json;
using test::fails_with;
using test::TempDir;

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string fixture(const std::string& name) {
  const char* folder = std::getenv("KATA_TOKENIZER_FIXTURES");
  return (folder != nullptr ? std::string(folder) : std::string(KATA_SOURCE_DIR) + "/tests/data/fixtures") +
         "/" + name;
}

#define SKIP_WITHOUT_ICU() \
  if (!has_unicode()) GTEST_SKIP() << "this build has no ICU"

// ---- against the library ----

class HfTokenizer : public ::testing::TestWithParam<const char*> {};

TEST_P(HfTokenizer, GivesTheIdsOfTheLibrary) {
  SKIP_WITHOUT_ICU();
  const auto tokenizer = make_tokenizer(fixture(std::string(GetParam()) + ".json"));
  const json cases = json::parse(slurp(fixture(std::string(GetParam()) + "_ids.json")));
  ASSERT_GT(cases.size(), 100u);
  int different = 0;
  for (const json& one : cases) {
    const auto text = one["text"].get<std::string>();
    const auto ids = one["ids"].get<std::vector<int32_t>>();
    const auto special = one.value("special", ids);
    const auto decoded = one.value("decoded", text);
    const bool lossy = decoded.find("\xef\xbf\xbd") != std::string::npos;  // bad bytes stay bytes here
    if (tokenizer->encode(text) == ids && tokenizer->encode(text, true) == special &&
        (lossy || tokenizer->decode(ids) == decoded))
      continue;
    if (++different > 5) continue;
    ADD_FAILURE() << one.dump() << "\nids " << json(tokenizer->encode(text)) << "\nspecial "
                  << json(tokenizer->encode(text, true)) << "\nbytes "
                  << json(tokenizer->decode(ids)).dump(-1, ' ', true, json::error_handler_t::replace);
  }
  EXPECT_EQ(different, 0) << "of " << cases.size();
}

TEST_P(HfTokenizer, PiecesInsideATextAddUp) {
  SKIP_WITHOUT_ICU();
  const std::string kind = GetParam();
  if (kind == "spaces") GTEST_SKIP() << "has no decoder, so blanks stand between pieces";
  const auto tokenizer = make_tokenizer(fixture(kind + ".json"));
  const std::string text = "the earth, 12 caf\xc3\xa9  \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x99\x82";
  const auto ids = tokenizer->encode("x " + text);
  std::string joined;
  for (const int32_t id : ids) joined += tokenizer->decode_next(id);
  const std::string whole = tokenizer->decode(ids);
  EXPECT_TRUE(joined.ends_with(whole)) << joined << "\n" << whole;
  EXPECT_LE(joined.size(), whole.size() + 1);
}

INSTANTIATE_TEST_SUITE_P(Kinds, HfTokenizer,
                         ::testing::Values("gpt2", "llama3", "qwen", "llama2", "llama2_first", "digits",
                                           "spaces"),
                         [](const auto& info) { return std::string(info.param); });

TEST(HfTokenizerUse, WhatItSaysOfItself) {
  SKIP_WITHOUT_ICU();
  const auto llama = make_tokenizer(fixture("llama2.json")), gpt = make_tokenizer(fixture("gpt2.json")),
             none = make_tokenizer(fixture("digits.json"));
  EXPECT_EQ(llama->vocab(), 1100);
  EXPECT_EQ(llama->document_token(), 2);  // </s>
  EXPECT_EQ(gpt->document_token(), 1200);
  EXPECT_EQ(none->document_token(), -1);
  EXPECT_EQ(llama->name(), fixture("llama2.json"));
  EXPECT_EQ(llama->file_name(), "tokenizer.json");
  EXPECT_EQ(llama->serialise(), slurp(fixture("llama2.json")));
  EXPECT_EQ(llama->decode_next(2), "");
  EXPECT_TRUE(fails_with(ExitCode::data, {"token 1100 at position 1", "none of the 1100"}, [&] {
    llama->decode({5, 1100});
  }));
  EXPECT_TRUE(fails_with(ExitCode::data, {"token -1"}, [&] { llama->decode_next(-1); }));
}

TEST(HfTokenizerUse, BadBytesAreReplaced) {
  SKIP_WITHOUT_ICU();
  for (const char* kind : {"gpt2.json", "llama2.json"}) {
    const auto tokenizer = make_tokenizer(fixture(kind));
    EXPECT_EQ(tokenizer->encode("a\xff\xc3(\xed\xa0\x80z\xe4\xb8"),
              tokenizer->encode(
                  "a\xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd"));
  }
}

TEST(HfTokenizerUse, LongWordsAreMergedLikeShortOnes) {
  SKIP_WITHOUT_ICU();
  const auto tokenizer = make_tokenizer(fixture("gpt2.json"));
  std::string word;
  for (int i = 0; i < 400; ++i) word += "thereinthebeginningofand"[i * 7 % 24];
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(word)), word);
}

TEST(HfTokenizerUse, ThreadsShareIt) {
  SKIP_WITHOUT_ICU();
  const auto tokenizer = make_tokenizer(fixture("llama3.json"));
  std::string text;
  for (int i = 0; i < 500; ++i) text += "word" + std::to_string(i * i) + " and, ";
  const auto want = tokenizer->encode(text);
  std::vector<std::thread> threads;
  std::vector<int> equal(4);
  for (size_t t = 0; t < equal.size(); ++t)
    threads.emplace_back([&, t] { equal[t] = tokenizer->encode(text) == want; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, std::vector<int>(4, 1));
}

TEST(HfTokenizerUse, ACheckpointsOwnFileIsRead) {
  SKIP_WITHOUT_ICU();
  const TempDir dir;
  std::ofstream(dir / "tokenizer.json") << slurp(fixture("gpt2.json"));
  const auto tokenizer = load_tokenizer(dir.path(), "gone/x.json");
  EXPECT_EQ(tokenizer->name(), "gone/x.json");
  EXPECT_EQ(tokenizer->vocab(), 1201);
}

TEST(HfTokenizerUse, WithoutIcuItSaysWhatToInstall) {
  if (has_unicode()) GTEST_SKIP() << "this build has ICU";
  EXPECT_TRUE(fails_with(ExitCode::device, {"gpt2.json", "libicu-dev", "KATA_ICU"},
                         [] { make_tokenizer(fixture("gpt2.json")); }));
}

// ---- made by hand ----

const char* const small = R"({
  "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
  "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
  "model": {"type": "BPE", "unk_token": null, "vocab": {"a": 0, "b": 1, "ab": 5}, "merges": ["a b"]}})";

std::unique_ptr<Tokenizer> read(const json& file) {
  return read_hf_tokenizer(file.dump(), "t.json", "t.json");
}

TEST(HfTokenizerFile, IdsMayHaveHoles) {
  SKIP_WITHOUT_ICU();
  json file = json::parse(small);
  file["added_tokens"] = json::parse(R"([{"id": 9, "content": "<x>", "single_word": false, "lstrip": false,
                                          "rstrip": false, "normalized": false, "special": true}])");
  file["model"]["merges"] = json::parse(R"([["a", "b"]])");
  const auto tokenizer = read(file);
  EXPECT_EQ(tokenizer->vocab(), 10);
  EXPECT_EQ(tokenizer->encode("ab<x>ba"), (std::vector<int32_t>{5, 9, 1, 0}));
  EXPECT_EQ(tokenizer->decode({5, 9, 3, 1}), "abb");
  EXPECT_EQ(tokenizer->decode_next(3), "");
}

TEST(HfTokenizerFile, TheOldestFilesNameNoType) {
  SKIP_WITHOUT_ICU();
  json file = json::parse(small);
  file["model"].erase("type");
  file["model"]["unk_token"] = "";
  file["model"]["continuing_subword_prefix"] = "";
  const auto tokenizer = read(file);
  EXPECT_EQ(tokenizer->encode("aab"), (std::vector<int32_t>{0, 5}));
  EXPECT_TRUE(
      fails_with(ExitCode::data, {"t.json", "\"c\"", "unk_token \"\""}, [&] { tokenizer->encode("ac"); }));
}

// A file with one change at a JSON pointer is refused with these words.
::testing::AssertionResult refused(const std::string& pointer, const char* value,
                                   std::vector<std::string> parts) {
  json file = json::parse(small);
  file[json::json_pointer(pointer)] = json::parse(value);
  parts.insert(parts.begin(), "t.json");
  return fails_with(ExitCode::data, parts, [&] { read(file); });
}

TEST(HfTokenizerFile, WhatIsNotKnownIsNamed) {
  SKIP_WITHOUT_ICU();
  EXPECT_TRUE(refused("/model/type", "\"Unigram\"", {"model.type", "Unigram", "only BPE"}));
  EXPECT_TRUE(refused("/model/shape", "1", {"model.shape", "unknown key"}));
  EXPECT_TRUE(refused("/modle", "1", {"modle", "did you mean model?"}));
  EXPECT_TRUE(refused("/truncation", "{}", {"truncation", "expected null"}));
  EXPECT_TRUE(refused("/version", "\"2.0\"", {"version", "1.0"}));
  EXPECT_TRUE(refused("/normalizer", R"({"type": "Nmt"})", {"normalizer.type", "\"Nmt\"", "StripAccents"}));
  EXPECT_TRUE(refused("/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFC", "x": 1}]})",
                      {"normalizer.normalizers[0].x", "unknown key"}));
  EXPECT_TRUE(
      refused("/pre_tokenizer", R"({"type": "BertPreTokenizer"})", {"pre_tokenizer.type", "Metaspace"}));
  EXPECT_TRUE(refused("/decoder", R"({"type": "WordPiece"})", {"decoder.type", "ByteFallback"}));
  EXPECT_TRUE(refused("/post_processor", R"({"type": "RobertaProcessing"})",
                      {"post_processor.type", "TemplateProcessing"}));
  EXPECT_TRUE(refused("/model/dropout", "0.1", {"model.dropout"}));
}

TEST(HfTokenizerFile, WrongVocabulariesAndMerges) {
  SKIP_WITHOUT_ICU();
  EXPECT_TRUE(refused("/model/vocab", "[]", {"model.vocab", "array, expected an object"}));
  EXPECT_TRUE(refused("/model/vocab", "{}", {"model.vocab", "no pieces"}));
  EXPECT_TRUE(refused("/model/vocab/a", "1.5", {"model.vocab.a", "whole number"}));
  EXPECT_TRUE(refused("/model/vocab/a", "-1", {"model.vocab.a", "-1", "from 0"}));
  EXPECT_TRUE(refused("/model/vocab/a", "18446744073709551615", {"model.vocab.a", "16777215"}));
  EXPECT_TRUE(refused("/model/vocab/a", "16777215", {"ids up to 16777215 for 3 pieces", "holes"}));
  EXPECT_TRUE(refused("/model/vocab/a", "5", {"model.vocab", "id 5 belongs to the piece"}));
  EXPECT_TRUE(refused("/model/merges", "null", {"model.merges", "null, expected an array"}));
  EXPECT_TRUE(refused("/model/merges/0", "\"a c\"", {"model.merges[0]", "\"c\" is no piece"}));
  EXPECT_TRUE(refused("/model/merges/0", "\"b a\"", {"model.merges[0]", "\"ba\" is no piece"}));
  EXPECT_TRUE(refused("/model/merges/0", "\"ab\"", {"model.merges[0]", "one blank"}));
  EXPECT_TRUE(refused("/model/merges/0", "\"a b \"", {"model.merges[0]", "one blank"}));
  EXPECT_TRUE(refused("/model/merges/0", "7", {"model.merges[0]"}));
  EXPECT_TRUE(refused("/model/merges/0", R"(["a"])", {"model.merges[0]", "1 strings"}));
  EXPECT_TRUE(refused("/model/merges/0", R"(["a", 2])", {"model.merges[0][1]", "number, expected a string"}));
  EXPECT_TRUE(refused("/model", "null", {"model", "null, expected an object"}));
  json file = json::parse(small);
  file["model"].erase("merges");
  EXPECT_TRUE(fails_with(ExitCode::data, {"t.json: model", "\"merges\" is missing"}, [&] { read(file); }));
}

TEST(HfTokenizerFile, WrongAddedTokens) {
  SKIP_WITHOUT_ICU();
  const auto token = [](int id, const std::string& content, const char* more = "") {
    return "{\"id\": " + std::to_string(id) + ", \"content\": \"" + content +
           "\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
           "\"special\": true" +
           more + "}";
  };
  const auto with = [&](const std::string& list, std::vector<std::string> parts) {
    return refused("/added_tokens", ("[" + list + "]").c_str(), std::move(parts));
  };
  EXPECT_TRUE(with(token(0, "a") + "," + token(0, "c"), {"added_tokens[1].id", "another added token"}));
  EXPECT_TRUE(with(token(7, "c") + "," + token(8, "c"), {"added_tokens[1].content", "twice"}));
  EXPECT_TRUE(with(token(3, "a"), {"added_tokens[0].id", "model.vocab gives it 0"}));
  EXPECT_TRUE(with(token(0, "c"), {"added_tokens[0].id", "piece \"a\""}));
  EXPECT_TRUE(with(token(7, ""), {"added_tokens[0].content", "empty"}));
  EXPECT_TRUE(with(token(7, "c", ", \"x\": 1"), {"added_tokens[0].x", "unknown key"}));
  EXPECT_TRUE(with("{\"id\": 7, \"content\": \"c\"}", {"added_tokens[0]", "\"special\" is missing"}));
  EXPECT_TRUE(with("3", {"added_tokens[0]", "number, expected an object"}));
}

TEST(HfTokenizerFile, WrongPatternsAndTemplates) {
  SKIP_WITHOUT_ICU();
  const auto split = [](const std::string& pattern, std::vector<std::string> parts) {
    const std::string text =
        R"({"type": "Split", "pattern": )" + pattern + R"(, "behavior": "Isolated", "invert": false})";
    parts.insert(parts.begin(), "pre_tokenizer.pattern");
    return refused("/pre_tokenizer", text.c_str(), parts);
  };
  EXPECT_TRUE(split(R"({"Regex": "a("})", {".Regex", "MISMATCHED_PAREN"}));
  EXPECT_TRUE(split(R"x({"Regex": "(?m:a)"})x", {".Regex", "(?m"}));
  EXPECT_TRUE(split(R"({"Regex": "\\h+"})", {".Regex", "\\h"}));
  EXPECT_TRUE(split(R"({"Regex": "\\p{N}{1,3}+"})", {".Regex", "a + behind a count"}));
  EXPECT_TRUE(split(R"({"String": ""})", {".String", "empty"}));
  EXPECT_TRUE(split(R"({"Strin": "a"})", {".Strin", "did you mean String?"}));
  EXPECT_TRUE(split("\"a\"", {"string, expected an object"}));
  EXPECT_TRUE(refused("/pre_tokenizer", R"({"type": "Punctuation", "behavior": "isolated"})",
                      {"pre_tokenizer.behavior", "Isolated"}));
  EXPECT_TRUE(refused("/pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})",
                      {"pre_tokenizer.replacement", "one character"}));
  EXPECT_TRUE(refused(
      "/pre_tokenizer",
      R"({"type": "Metaspace", "replacement": "_", "add_prefix_space": false, "prepend_scheme": "first"})",
      {"pre_tokenizer.add_prefix_space", "contradicts"}));
  const auto single = [](const std::string& items, std::vector<std::string> parts) {
    const std::string text = R"({"type": "TemplateProcessing", "pair": [], "special_tokens":
        {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}, "single": [)" +
                             items + "]}";
    return refused("/post_processor", text.c_str(), parts);
  };
  EXPECT_TRUE(single("", {"post_processor.single", "0 times"}));
  EXPECT_TRUE(single(R"({"Sequence": {"id": "B", "type_id": 0}})", {"post_processor.single[0].Sequence.id"}));
  EXPECT_TRUE(single(R"({"SpecialToken": {"id": "</s>", "type_id": 0}})",
                     {"single[0].SpecialToken.id", "special_tokens"}));
  EXPECT_TRUE(refused("/post_processor",
                      R"({"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens":
                      {"<s>": {"id": "<s>", "ids": [99], "tokens": ["<s>"]}}})",
                      {"post_processor.special_tokens[\"<s>\"].ids[0]", "99", "from 0 to 5"}));
}

TEST(HfTokenizerFile, WhatIsNoJson) {
  SKIP_WITHOUT_ICU();
  const auto bad = [](const std::string& bytes, std::vector<std::string> parts) {
    parts.insert(parts.begin(), "t.json");
    return fails_with(ExitCode::data, parts, [&] { read_hf_tokenizer(bytes, "t.json", "t.json"); });
  };
  EXPECT_TRUE(bad("", {"line 1"}));
  EXPECT_TRUE(bad("[]", {"array, expected an object"}));
  EXPECT_TRUE(bad("{}", {"\"model\" is missing"}));
  EXPECT_TRUE(bad("{\"model\": {\n\"vocab\": {\"\xff\": 1}}}", {"line 2", "model.vocab", "UTF-8"}));
  EXPECT_TRUE(bad("{\"model\": {\"vocab\": {\"a\": 1, \"a\": 2}}}", {"model.vocab.a", "twice"}));
  EXPECT_TRUE(bad(std::string(65, '['), {"65 objects and arrays"}));
  EXPECT_TRUE(bad(std::string(1'000'000, '['), {"1000000 objects and arrays", "64"}));
  EXPECT_TRUE(bad(R"({"tokenizer": "bytes"})", {"\"model\" is missing"}));
  const std::string whole = small;
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_TRUE(bad(whole.substr(0, size), {"no JSON"})) << size;
}

TEST(HfTokenizerFile, FilesThatCannotBeRead) {
  SKIP_WITHOUT_ICU();
  const TempDir dir;
  EXPECT_TRUE(fails_with(ExitCode::data, {"absent.json", "no such tokenizer file"},
                         [&] { make_tokenizer(dir / "absent.json"); }));
  std::ofstream(dir / "large.json") << "x";
  std::filesystem::resize_file(dir / "large.json", largest_hf_tokenizer + 1);
  EXPECT_TRUE(fails_with(ExitCode::data, {"large.json", "268435457 bytes", "268435456"},
                         [&] { make_tokenizer(dir / "large.json"); }));
}

TEST(HfTokenizerFile, TextsThatGrowWithoutEnd) {
  SKIP_WITHOUT_ICU();
  json replace = json::parse(R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaa"})");
  json file = json::parse(small);
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
  for (int i = 0; i < 12; ++i) file["normalizer"]["normalizers"].push_back(replace);
  const auto tokenizer = read(file);
  EXPECT_TRUE(fails_with(ExitCode::data, {"damaged"}, [&] { tokenizer->encode("aaa"); }));
  for (int i = 12; i < 80; ++i) file["normalizer"]["normalizers"].push_back(replace);
  EXPECT_TRUE(fails_with(ExitCode::data, {"normalizer.normalizers[64]", "64 steps"}, [&] { read(file); }));
  file = json::parse(small);
  file["decoder"] = {{"type", "Sequence"},
                     {"decoders", json::array({replace, replace, replace, replace, replace})}};
  EXPECT_TRUE(fails_with(ExitCode::data, {"damaged"}, [&] { read(file); }));
  file = json::parse(small);
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", json::array()}};
  for (int i = 0; i < 20; ++i)
    file["pre_tokenizer"]["pretokenizers"].push_back(
        json::parse(R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": false})"));
  const auto spells = read(file);
  EXPECT_TRUE(fails_with(ExitCode::data, {"damaged"}, [&] { spells->encode("\xff\xff"); }));
}

TEST(HfTokenizerFile, MessagesAreOneLine) {
  SKIP_WITHOUT_ICU();
  EXPECT_TRUE(refused("/model/merges/0", R"(["a\n", "b"])", {"model.merges[0]", "\"a\\n\" is no piece"}));
  EXPECT_TRUE(refused("/model/type", R"("x\ny")", {"model.type", "x\\ny"}));
  EXPECT_TRUE(refused("/a\nb", "1", {"[\"a\\nb\"]", "unknown key"}));
}

TEST(HfTokenizerFile, ExpressionsThatTakeForEver) {
  SKIP_WITHOUT_ICU();
  json file = json::parse(small);
  file["pre_tokenizer"] = json::parse(
      R"({"type": "Split", "pattern": {"Regex": "(a*)*$b"}, "behavior": "Isolated", "invert": false})");
  const auto tokenizer = read(file);
  EXPECT_TRUE(fails_with(ExitCode::data, {"pre_tokenizer.pattern.Regex", "takes too"},
                         [&] { tokenizer->encode(std::string(60, 'a')); }));
}

}  // namespace
}  // namespace kata
