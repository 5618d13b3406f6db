#include "data/sentencepiece_trainer.h"

#include <algorithm>
#include <filesystem>
#include <sentencepiece_trainer.h>
#include <unordered_map>

#include "base/file.h"
#include "base/parallel.h"
#include "data/child_process.h"
#include "data/text_input.h"

namespace kata {

namespace {

constexpr size_t longest_line = 4096;  // bytes; the library would leave out what is much longer

// The lines of the texts one after the other, long ones in parts that end at a blank.
class Lines : public sentencepiece::SentenceIterator {
 public:
  Lines(const std::vector<TextInput>& texts, int64_t stride) : texts_(texts), stride_(stride) { Next(); }

  bool done() const override { return done_; }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }
  int64_t used_bytes() const { return used_bytes_; }

  void Next() override {
    while (!(done_ = !take()))
      if (!line_.empty() && count_++ % stride_ == 0) break;
    if (!done_) used_bytes_ += static_cast<int64_t>(line_.size());
  }

 private:
  bool take() {
    while (rest_.empty()) {
      if (file_ == texts_.size()) return false;
      rest_ = texts_[file_++].view();
    }
    const size_t line_end = std::min(rest_.find_first_of("\n\f"), rest_.size());
    size_t size = line_end;
    if (size > longest_line) {
      size = rest_.substr(0, longest_line).rfind(' ');
      if (size == std::string_view::npos || size == 0) {
        size = longest_line;
        while (size > longest_line - 4 && (static_cast<unsigned char>(rest_[size]) & 0xC0) == 0x80) --size;
      }
    }
    line_.assign(rest_.substr(0, size));
    rest_.remove_prefix(std::min(rest_.size(), size == line_end ? size + 1 : size));
    return true;
  }

  const std::vector<TextInput>& texts_;
  int64_t stride_, count_ = 0, used_bytes_ = 0;
  size_t file_ = 0;
  std::string_view rest_;
  std::string line_;
  bool done_ = false;
};

// How many threads there are decides the order of the library's sums, so it is fixed.
std::unordered_map<std::string, std::string> settings(const SentencePieceOptions& options) {
  return {{"model_type", options.kind},
          {"vocab_size", std::to_string(options.vocab)},
          {"normalization_rule_name", "identity"},
          {"add_dummy_prefix", "false"},
          {"remove_extra_whitespaces", "false"},
          {"allow_whitespace_only_pieces", "true"},
          {"byte_fallback", "true"},
          {"split_digits", "true"},
          {"character_coverage", "0.9995"},
          {"num_threads", "16"},
          {"minloglevel", "2"}};
}

// The library's message without the place in its source.
std::string shortened(const std::string& message) {
  const size_t at = message.rfind("] ");
  return at == std::string::npos || at + 2 >= message.size() ? message : message.substr(at + 2);
}

}  // namespace

SentencePieceSummary train_sentencepiece(const SentencePieceOptions& options) {
  const std::string folder = std::filesystem::path(options.output).parent_path().string();
  if (!folder.empty() && !is_folder(folder))  // said before minutes of training
    fail(ExitCode::data, "{}: the folder {} does not exist; make it first", options.output, folder);
  const std::vector<TextInput> texts = open_texts(options.inputs);
  SentencePieceSummary summary;
  for (const TextInput& text : texts) summary.text_bytes += static_cast<int64_t>(text.view().size());
  const int64_t stride = ceil_div(summary.text_bytes, largest_training_text);
  for (Lines lines(texts, stride); !lines.done(); lines.Next()) summary.used_bytes = lines.used_bytes();
  const std::string name = input_name(options.inputs[0]);
  if (summary.used_bytes == 0) fail(ExitCode::data, "{}: no text, only line ends; give a text file", name);

  // '+' and the model, or '-' and what is wrong.
  const ChildOutcome outcome = run_in_child([&] {
    sentencepiece::SetRandomGeneratorSeed(1);
    Lines lines(texts, stride);
    std::string model;
    const auto status = sentencepiece::SentencePieceTrainer::Train(settings(options), &lines, &model);
    return status.ok() ? model.insert(0, 1, '+') : status.ToString().insert(0, 1, '-');
  });
  if (!outcome.returned)
    fail(
        ExitCode::data,
        "{}: the sentencepiece library broke down while it trained on {} bytes of text ({}); give it more or "
        "other text, or ask for fewer than {} pieces",
        name, summary.used_bytes, outcome.ending, options.vocab);
  if (outcome.value[0] != '+')
    fail(ExitCode::data, "{}: sentencepiece cannot make {} pieces of {} bytes of text: {}", name,
         options.vocab, summary.used_bytes, shortened(outcome.value.substr(1)));
  const std::string_view model = std::string_view(outcome.value).substr(1);
  summary.model_bytes = static_cast<int64_t>(model.size());
  write_file_atomic(options.output, model);
  return summary;
}

}  // namespace kata
