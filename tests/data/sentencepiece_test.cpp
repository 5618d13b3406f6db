#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include "base/file.h"
#include "base/parallel.h"
#include "data/child_process.h"
#include "data/sentencepiece_layout.h"
#include "data/sentencepiece_tokenizer.h"
#include "data/sentencepiece_trainer.h"
#include "data/shard.h"
#include "data/tokenize.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace kata {
namespace {

using test::fails_with;
using test::TempDir;

// Lines of invented words, some with numbers and letters beyond ASCII.
std::string words(int lines) {
  const char* syllables[] = {"ka", "ta", "lo", "ren", "tz", "psd", "co", "ne", "mi", "su", "\xc3\xa9t", "or"};
  std::string text;
  uint32_t state = 7;
  const auto draw = [&](uint32_t n) { return (state = state * 1664525u + 1013904223u) / 65536u % n; };
  for (int line = 0; line < lines; ++line) {
    for (uint32_t word = 0, count = 3 + draw(9); word < count; ++word) {
      if (word > 0) text += ' ';
      if (draw(12) == 0) text += std::to_string(draw(1000)) + " ";
      for (uint32_t part = 0, parts = 1 + draw(3); part < parts; ++part) text += syllables[draw(12)];
    }
    text += line % 7 == 6 ? ".\n\n" : ".\n";
  }
  return text;
}

class SentencePiece : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    put("words.txt", words(3000));
    train("small.model");
  }
  static void TearDownTestSuite() { delete dir_; }

  static std::string put(const std::string& name, const std::string& bytes) {
    std::ofstream(*dir_ / name, std::ios::binary) << bytes;
    return *dir_ / name;
  }
  static SentencePieceSummary train(const std::string& output, const std::string& kind = "unigram") {
    return train_sentencepiece({{*dir_ / "words.txt"}, *dir_ / output, 400, kind});
  }
  static std::unique_ptr<Tokenizer> load(const std::string& name) { return make_tokenizer(*dir_ / name); }

  // A model as others make them: a blank before the text, runs of blanks cut, characters normalised.
  static std::string train_foreign() {
    std::string bytes;
    const auto status = sentencepiece::SentencePieceTrainer::Train({{"input", *dir_ / "words.txt"},
                                                                    {"vocab_size", "200"},
                                                                    {"minloglevel", "2"},
                                                                    {"bos_id", "1"},
                                                                    {"eos_id", "-1"}},
                                                                   nullptr, &bytes);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return bytes;
  }
  // Loads and uses the model with one byte changed, for `count` of its bytes from `begin` on.
  static void change_bytes(const std::string& whole, size_t begin, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      std::string changed = whole;
      char& byte = changed[begin + i * 7919 % (whole.size() - begin)];
      byte = static_cast<char>(byte ^ (1 << i % 8));
      put("changed.model", changed);
      try {
        const auto tokenizer = load("changed.model");
        tokenizer->decode(tokenizer->encode(words(5)));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::data) << error.what();
      }
    }
  }

  static TempDir* dir_;
};
TempDir* SentencePiece::dir_ = nullptr;

const char* const odd_text =
    "  two blanks,\ta tab, 1234567890\n\n\nand \xc3\xa9t\xc3\xa9, \xf0\x9f\x99\x82 <s> </s> <0x0A> e\xcc\x81 "
    "\xef\xac\x81 kata lorentz. \n";

TEST_F(SentencePiece, TextComesBack) {
  const auto tokenizer = load("small.model");
  EXPECT_EQ(tokenizer->vocab(), 400);
  EXPECT_EQ(tokenizer->document_token(), 2);
  EXPECT_EQ(tokenizer->name(), *dir_ / "small.model");
  EXPECT_EQ(tokenizer->file_name(), "tokenizer.model");
  EXPECT_EQ(tokenizer->serialise(), read_file(*dir_ / "small.model"));
  EXPECT_TRUE(tokenizer->encode("").empty());
  for (const std::string& text : {std::string(odd_text), words(50), std::string("\n"), std::string(" ")}) {
    const std::vector<int32_t> ids = tokenizer->encode(text);
    EXPECT_EQ(tokenizer->decode(ids), text);
    std::string joined;
    for (const int32_t id : ids) {
      EXPECT_GT(id, 2);  // no control token, nothing unknown
      joined += tokenizer->decode_next(id);
    }
    EXPECT_EQ(joined, text);
  }
  EXPECT_LT(tokenizer->encode(words(50)).size(), words(50).size() / 2);
}

TEST_F(SentencePiece, TrainingIsTheSameOnAnyNumberOfThreads) {
  const int before = thread_count();
  set_thread_count(before == 1 ? 2 : 1);
  train("again.model");
  set_thread_count(before);
  EXPECT_EQ(read_file(*dir_ / "again.model"), read_file(*dir_ / "small.model"));
}

TEST_F(SentencePiece, BytePairsToo) {
  const SentencePieceSummary summary = train("pairs.model", "bpe");
  EXPECT_EQ(summary.model_bytes, static_cast<int64_t>(read_file(*dir_ / "pairs.model").size()));
  EXPECT_LT(summary.used_bytes, summary.text_bytes);  // line ends are no part of lines
  const auto tokenizer = load("pairs.model");
  EXPECT_EQ(tokenizer->vocab(), 400);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(odd_text)), odd_text);
}

TEST_F(SentencePiece, LongLinesAreUsedWhole) {
  std::string line = words(2000);
  std::replace(line.begin(), line.end(), '\n', ' ');
  const std::string one = put("line.txt", line + std::string(9001, 'x') + "\f\xc3\xa9\n");
  const auto summary = train_sentencepiece({{one}, *dir_ / "line.model", 400});
  EXPECT_EQ(summary.used_bytes, summary.text_bytes - 2);
}

TEST_F(SentencePiece, ForeignModelsMeanWhatTheLibrarySays) {
  const std::string bytes = train_foreign();
  put("foreign.model", bytes);
  const auto tokenizer = load("foreign.model");
  EXPECT_EQ(tokenizer->document_token(), 1);
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.LoadFromSerializedProto(bytes).ok());
  for (const std::string& text : {words(20), std::string("  kata   \xef\xac\x81 \xf0\x9f\x99\x82 1")}) {
    const auto ids = tokenizer->encode(text);
    EXPECT_EQ(ids, library.EncodeAsIds(text));
    EXPECT_EQ(tokenizer->decode(ids), library.DecodeIds(ids));
    EXPECT_EQ(tokenizer->decode_next(ids[0])[0], ' ');
  }
}

TEST_F(SentencePiece, ACheckpointsOwnFileIsRead) {
  std::filesystem::create_directory(*dir_ / "step");
  put("step/tokenizer.model", read_file(*dir_ / "small.model"));
  const auto tokenizer = load_tokenizer(*dir_ / "step", "gone/x.model");
  EXPECT_EQ(tokenizer->name(), "gone/x.model");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(odd_text)), odd_text);
  EXPECT_EQ(load_tokenizer(*dir_ / "step", "bytes")->vocab(), 256);
}

// ---- documents in shards ----

std::vector<int32_t> tokens_of(const std::string& path) {
  const Shard shard(path);
  std::vector<int32_t> ids(static_cast<size_t>(shard.tokens()));
  shard.read(0, shard.tokens(), ids.data());
  return ids;
}

TEST_F(SentencePiece, ATokenBeginsEachDocument) {
  std::string text, without;
  for (int i = 0; i < 100; ++i) {
    const std::string document = "kata " + std::to_string(i) + "\n";
    text += (i > 0 ? "\f" : "") + document;
    without += document;
  }
  TokenizeOptions options{{put("documents.txt", text)}, *dir_ / "documents", *dir_ / "small.model"};
  options.documents = "form-feed";
  options.validation_fraction = 0.1;
  tokenize(options);
  const auto train = tokens_of(*dir_ / "documents/train-000000.bin"),
             validation = tokens_of(*dir_ / "documents/validation.bin");
  EXPECT_EQ(Shard(*dir_ / "documents/validation.bin").token_bytes(), 2);
  EXPECT_EQ(train[0], 2);
  EXPECT_EQ(validation[0], 2);
  EXPECT_EQ(std::count(train.begin(), train.end(), 2), 91);
  EXPECT_EQ(std::count(validation.begin(), validation.end(), 2), 9);
  std::string back;
  detokenize({*dir_ / "documents/train-000000.bin", *dir_ / "documents/validation.bin"}, *load("small.model"),
             [&](std::string_view part) { back += part; });
  EXPECT_EQ(back, without);

  // A document is eight bytes here; its token stands for none of them.
  EXPECT_DOUBLE_EQ(bytes_per_token({*dir_ / "documents/validation.bin"}, *load("small.model")),
                   9.0 * 8 / static_cast<double>(validation.size()));

  options.documents = "file";
  options.inputs = {put("one.txt", words(60)), put("two.txt", words(20))};
  options.overwrite = true;
  options.validation_fraction = 0.05;  // a part of the second file, so no document begins in it
  tokenize(options);
  const auto files = tokens_of(*dir_ / "documents/train-000000.bin"),
             end = tokens_of(*dir_ / "documents/validation.bin");
  EXPECT_EQ(std::count(files.begin(), files.end(), 2), 2);
  EXPECT_EQ(std::count(end.begin(), end.end(), 2), 0);
}

// ---- errors ----

TEST_F(SentencePiece, FilesThatAreNoModels) {
  const auto refused = [&](const std::string& name, const std::vector<std::string>& parts) {
    return fails_with(ExitCode::data, parts, [&] { load(name); });
  };
  EXPECT_TRUE(refused("absent.model", {"absent.model", "no such tokenizer file", "spelling"}));
  put("empty.model", "");
  EXPECT_TRUE(refused("empty.model", {"empty.model", "an empty file", "train-tokenizer"}));
  put("text.model", "just text\n");
  EXPECT_TRUE(refused("text.model", {"text.model", "not a sentencepiece model"}));
  std::filesystem::create_directory(*dir_ / "folder.model");
  EXPECT_TRUE(refused("folder.model", {"folder.model"}));
  put("large.model", "x");
  std::filesystem::resize_file(*dir_ / "large.model", largest_sentencepiece_model + 1);
  EXPECT_TRUE(refused("large.model", {"large.model", "67108865 bytes", "67108864"}));
  // Sections of the right numbers, filled with what is no message.
  put("hollow.model", std::string("\x0a\x03xyz\x12\0\x1a\0", 9));
  EXPECT_TRUE(refused("hollow.model", {"hollow.model", "refuses it"}));
}

TEST_F(SentencePiece, EveryTruncationIsRefused) {
  const std::string whole = read_file(*dir_ / "small.model");
  check_sentencepiece_layout(whole, "x.model");
  for (size_t size = 0; size < whole.size(); ++size)
    ASSERT_TRUE(
        fails_with(ExitCode::data, {"x.model", "expected a sentencepiece model"},
                   [&] { check_sentencepiece_layout(std::string_view(whole).substr(0, size), "x.model"); }))
        << size << " of " << whole.size() << " bytes";
  put("cut.model", whole.substr(0, whole.size() - 1));
  EXPECT_TRUE(fails_with(ExitCode::data, {"cut.model", "cut short"}, [&] { load("cut.model"); }));
}

// Whatever a byte becomes: one line, or a model that works.
TEST_F(SentencePiece, ChangedBytesDoNoHarm) {
  change_bytes(read_file(*dir_ / "small.model"), 0, 60);
  const std::string foreign = train_foreign();
  change_bytes(foreign, 0, 60);  // most of it is a normalisation table
}

TEST_F(SentencePiece, NormalisationTablesThatLeadAstray) {
  const std::string whole = train_foreign();
  check_sentencepiece_layout(whole, "x.model");
  const size_t table = whole.find("nmt_nfkc") + 8 + 4 + 4;  // behind the name, a key and a length, a length
  int refused = 0;
  for (size_t unit = 0; unit < 64; ++unit) {
    std::string changed = whole;
    changed[table + 4 * unit + 2] = '\x7f';  // far away
    try {
      check_sentencepiece_layout(changed, "x.model");
    } catch (const Error& error) {
      ++refused;
      EXPECT_NE(std::string(error.what()).find("normalisation table is damaged"), std::string::npos);
    }
  }
  EXPECT_GT(refused, 32);
}

TEST_F(SentencePiece, IdsOfOthers) {
  const auto tokenizer = load("small.model");
  EXPECT_TRUE(fails_with(ExitCode::data, {"token 400 at position 1", "400 of"}, [&] {
    tokenizer->decode({5, 400});
  }));
  EXPECT_TRUE(fails_with(ExitCode::data, {"token -1"}, [&] { tokenizer->decode_next(-1); }));
}

TEST_F(SentencePiece, TextThatGivesNoModel) {
  const auto refused = [&](SentencePieceOptions options, const std::vector<std::string>& parts) {
    return fails_with(ExitCode::data, parts, [&] { train_sentencepiece(options); });
  };
  const std::string output = *dir_ / "none.model", input = *dir_ / "words.txt";
  EXPECT_TRUE(refused({{input}, output, 100'000}, {"words.txt", "100000 pieces", "too high"}));
  EXPECT_TRUE(refused({{input}, output, 260}, {"words.txt", "260 pieces"}));
  EXPECT_TRUE(refused({{put("ends.txt", "\n\n")}, output, 400}, {"ends.txt", "only line ends"}));
  EXPECT_TRUE(refused({{*dir_ / "absent.txt"}, output, 400}, {"absent.txt"}));
  EXPECT_TRUE(refused({{input}, *dir_ / "absent/none.model", 400}, {"absent/none.model"}));
  EXPECT_FALSE(std::filesystem::exists(output));
}

// ---- the child process ----

TEST(ChildProcess, WhatBecomesOfTheBody) {
  const std::string large(1 << 20, 'x');
  const auto value = run_in_child([&] { return large; });
  EXPECT_TRUE(value.returned);
  EXPECT_EQ(value.value, large);
  const auto left = run_in_child([]() -> std::string { std::exit(3); });
  EXPECT_FALSE(left.returned);
  EXPECT_EQ(left.ending, "exit code 3");
  EXPECT_EQ(run_in_child([]() -> std::string { std::exit(0); }).ending, "exit code 0");
  EXPECT_NE(run_in_child([]() -> std::string {
              std::raise(SIGKILL);
              return "";
            }).ending.find("signal 9"),
            std::string::npos);
  EXPECT_EQ(run_in_child([]() -> std::string { throw std::runtime_error("why"); }).ending, "why");
  EXPECT_THROW(run_in_child([]() -> std::string { throw std::bad_alloc(); }), std::bad_alloc);
}

}  // namespace
}  // namespace kata
