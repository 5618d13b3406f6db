// katadata: makes, shows and turns back data files.

#include <cstdio>
#include <memory>

#include "apps/interchange.h"
#include "apps/options.h"
#include "config/schema.h"
#include "data/batch.h"
#include "data/inspect.h"
#include "data/npz.h"
#include "data/sentencepiece_trainer.h"
#include "data/shard.h"
#include "data/tokenize.h"
#include "tasks/example_set.h"

namespace kata {
namespace {

constexpr const char* example = R"(
Example: the corpus that ships becomes shards, is looked at, and comes back
  gzip -dc data/kjv.txt.gz | katadata tokenize --input - --output data/corpus
  katadata inspect data/corpus/train-000000.bin
  katadata detokenize data/corpus/validation.bin | tail -c 300

Exit codes: 0 done, 2 arguments, 3 data or files, 5 memory. COMMAND --help shows the options of a command.)";

constexpr const char* mqar_example = R"(
Example: the first test set of zoology's sweep (numpy.load reads it)
  katadata synth mqar --length 64 --pairs 4 --examples 1000 --seed 2967327842 --split test --out mqar.npz

FILE holds int64 arrays `inputs` and `labels` [examples, length], labels -100 where nothing is asked, and
the word `split`. The seed is NumPy's and is used as it is; the split is only recorded.)";

constexpr const char* overwrite_example = R"(
Example: 8 keys, 4 of which are bound twice more; the label is the value bound last
  katadata synth overwrite --length 64 --pairs 8 --rewrites 2 --rewritten 4 --examples 1000 --seed 1 \
    --split test --out overwrite.npz

Layouts: block = all first bindings, then round after round of new ones; interleaved = all in a random order;
zoology = the examples of zoology's forgetting_mqar (one rewrite). FILE, seed and split are as of synth mqar.)";

constexpr const char* tokenize_example = R"(
Example: two books, 10% of the text (its end) for validation
  katadata tokenize --input a.txt b.txt --output data/books --validation-fraction 0.1

Writes PREFIX/train-000000.bin, ... and PREFIX/validation.bin. The files are joined as they are. With a
sentencepiece model or a tokenizer.json as the tokenizer, its end-of-text token begins each document.)";

constexpr const char* tokenizer_help = "bytes, a sentencepiece model (*.model) or a tokenizer.json (*.json)";

constexpr const char* train_tokenizer_example = R"(
Example: 8000 pieces of the corpus that ships, and shards made with them
  gzip -dc data/kjv.txt.gz > kjv.txt
  katadata train-tokenizer --input kjv.txt --vocab 8000 --output kjv.model
  katadata tokenize --input kjv.txt --tokenizer kjv.model --output data/kjv

The same text gives the same model. Nothing is normalised, and what has no piece is spelt in bytes.)";

// A decimal integer in a range. Signs, blanks, exponents and leading zeros (octal elsewhere) are refused.
CLI::Validator integer(int64_t low, int64_t high) {
  const auto check = [low, high](const std::string& text) -> std::string {
    const bool digits = !text.empty() && text.size() <= 18 &&
                        text.find_first_not_of("0123456789") == std::string::npos &&
                        (text[0] != '0' || text.size() == 1);
    if (digits && std::stoll(text) >= low && std::stoll(text) <= high) return "";
    return fmt::format("\"{}\", expected a whole number from {} to {}", text, low, high);
  };
  return CLI::Validator(check, "");
}

// A number in [0, 1).
CLI::Validator fraction() {
  const auto check = [](const std::string& text) -> std::string {
    double value = -1;
    if (CLI::detail::lexical_cast(text, value) && value >= 0 && value < 1) return "";
    return fmt::format("\"{}\", expected a number from 0 to below 1", text);
  };
  return CLI::Validator(check, "");
}

// ---- synth ----

struct SynthOptions {
  ExampleSpec spec;
  std::string split, out;
};

constexpr int64_t most = int64_t{1} << 40;

void add_synth(CLI::App& app, SynthOptions& o) {
  app.add_option("--length", o.spec.length, "tokens of an example, even")
      ->required()
      ->check(integer(1, most));
  app.add_option("--pairs", o.spec.pairs, "key-value pairs; 4 * pairs fit in the length")
      ->required()
      ->check(integer(1, most));
  app.add_option("--examples", o.spec.examples, "how many")->required()->check(integer(1, most));
  app.add_option("--seed", o.spec.seed, "of NumPy's generator")->required()->check(integer(0, UINT32_MAX));
  app.add_option("--vocab", o.spec.vocab, "token ids, more than the length")
      ->check(integer(1, most))
      ->capture_default_str();
  app.add_option("--split", o.split, "train or test")->required()->check(CLI::IsMember({"train", "test"}));
  app.add_option("--out", o.out, "the .npz to write")->required()->type_name("FILE");
}

void add_mqar(CLI::App& app, SynthOptions& o) {
  add_synth(app, o);
  app.footer(mqar_example);
}

void add_overwrite(CLI::App& app, SynthOptions& o) {
  o.spec.task = "overwrite";
  o.spec.rewrites = 1;
  o.spec.layout = "block";
  add_synth(app, o);
  app.add_option("--rewrites", o.spec.rewrites, "times that a rewritten key is bound again")
      ->check(integer(1, most))
      ->capture_default_str();
  app.add_option("--rewritten", o.spec.rewritten, "how many of the keys are rewritten (default: all)")
      ->check(integer(1, most));
  app.add_option("--layout", o.spec.layout, "block, interleaved or zoology")
      ->check(CLI::IsMember({"block", "interleaved", "zoology"}))
      ->capture_default_str();
  app.footer(overwrite_example);
}

std::string rewrites_text(const ExampleSpec& spec) {
  if (spec.task != "overwrite") return "";
  return fmt::format(", {} of them bound {} more times ({})", spec.rewritten, spec.rewrites, spec.layout);
}

void synth(SynthOptions o) {
  if (o.spec.task == "overwrite" && o.spec.rewritten == 0) o.spec.rewritten = o.spec.pairs;
  check_examples(o.spec);
  std::unique_ptr<ExampleSet> data;
  const auto length = static_cast<size_t>(o.spec.length);
  const auto rows = [&](bool labels) {
    return [&, labels](const NpzArray::Sink& sink) {
      std::vector<int32_t> inputs(length), targets(length);
      std::vector<int64_t> row(length);
      for (int64_t i = 0; i < o.spec.examples; ++i) {
        data->render(i, inputs.data(), targets.data());
        for (size_t t = 0; t < length; ++t)
          row[t] = !labels ? inputs[t] : targets[t] == kNoTarget ? -100 : targets[t];
        sink(row.data(), row.size() * sizeof(int64_t));
      }
    };
  };
  const auto split = [&](const NpzArray::Sink& sink) {
    char32_t word[5] = {};
    std::copy(o.split.begin(), o.split.end(), word);
    sink(word, sizeof word);
  };
  const std::vector<int64_t> shape = {o.spec.examples, o.spec.length};
  const std::vector<NpzArray> arrays = {{"inputs", "<i8", shape, rows(false)},
                                        {"labels", "<i8", shape, rows(true)},
                                        {"split", "<U5", {}, split}};
  check_npz_size(o.out, arrays);
  data = make_examples(o.spec);
  write_npz(o.out, arrays);
  logger().info("{}: {} examples of {} tokens with {} pairs{}, vocabulary {}, seed {}, split {}", o.out,
                o.spec.examples, o.spec.length, o.spec.pairs, rewrites_text(o.spec), o.spec.vocab,
                o.spec.seed, o.split);
}

// ---- tokenize ----

void add_tokenize(CLI::App& app, TokenizeOptions& o) {
  app.add_option("--input", o.inputs, "text files; - is standard input")->required()->type_name("FILE");
  app.add_option("--output", o.output, "folder for the shards")->required()->type_name("PREFIX");
  app.add_option("--tokenizer", o.tokenizer, tokenizer_help)->capture_default_str();
  app.add_option("--documents", o.documents,
                 "file: each is a document; form-feed: it stands between the documents of a file")
      ->check(CLI::IsMember({"file", "form-feed"}))
      ->capture_default_str();
  app.add_option("--validation-fraction", o.validation_fraction,
                 "part of the text, at its end, for validation; 0 = none")
      ->check(fraction())
      ->capture_default_str();
  app.add_option("--shard-tokens", o.shard_tokens, "tokens of a train shard; the last one has what is left")
      ->check(integer(1, largest_shard))
      ->capture_default_str();
  app.add_flag("--overwrite", o.overwrite, "replace the shards that are in the folder");
  app.footer(tokenize_example);
}

void report(const TokenizeResult& result) {
  for (const TokenizedFile& file : result.files) logger().info("{}: {} tokens", file.path, file.tokens);
  logger().info("{} bytes of text to train on, {} to validate on", result.train_bytes,
                result.validation_bytes);
}

// ---- train-tokenizer ----

void add_train_tokenizer(CLI::App& app, SentencePieceOptions& o) {
  app.add_option("--input", o.inputs, "text files; - is standard input")->required()->type_name("FILE");
  app.add_option("--vocab", o.vocab, "pieces, the 256 bytes and 3 control tokens among them")
      ->check(integer(260, 1'000'000))
      ->capture_default_str();
  app.add_option("--output", o.output, "the model to write, named *.model")
      ->required()
      ->type_name("FILE")
      ->check([](const std::string& name) {
        return name.ends_with(".model") ? "" : "\"" + name + "\", expected a name that ends in .model";
      });
  app.add_option("--kind", o.kind, "unigram or bpe")
      ->check(CLI::IsMember({"unigram", "bpe"}))
      ->capture_default_str();
  app.footer(train_tokenizer_example);
}

void train_tokenizer(const SentencePieceOptions& options) {
  const SentencePieceSummary summary = train_sentencepiece(options);
  logger().info("{}: {} pieces ({}) from {} of {} bytes of text, {} bytes", options.output, options.vocab,
                options.kind, summary.used_bytes, summary.text_bytes, summary.model_bytes);
}

// ---- inspect, detokenize ----

// A failed write is reported at exit.
void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

struct FileOptions {
  std::vector<std::string> files;
  std::string tokenizer = "bytes";
};

void add_files(CLI::App& app, FileOptions& o, const char* help) {
  app.add_option("FILE", o.files, help)->required();
  app.add_option("--tokenizer", o.tokenizer, tokenizer_help)->capture_default_str();
}

// A misspelt option or command is named, with the nearest one of the commands that were given; CLI11 would
// rather complain of what is missing because of it.
void refuse_unknown(const CLI::App& app) {
  std::vector<std::string> names;
  std::vector<const CLI::App*> open = {&app};
  while (!open.empty()) {
    const CLI::App* command = open.back();
    open.pop_back();
    for (const CLI::Option* option : command->get_options()) names.push_back(option->get_name());
    const auto given = command->get_subcommands();
    open.insert(open.end(), given.begin(), given.end());
    if (!given.empty()) continue;
    for (const CLI::App* sub : command->get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(sub->get_name());
  }
  const std::vector<std::string> unknown = app.remaining(true);
  if (unknown.empty()) return;
  const std::string nearest = nearest_name(unknown[0], names);
  fail(ExitCode::usage, "unexpected argument {}{}; see {} --help", unknown[0],
       nearest.empty() ? "" : ", did you mean " + nearest + "?", app.get_name());
}

bool parse_commands(CLI::App& app, int argc, char** argv, const SharedOptions& shared) {
  try {
    return parse(app, argc, argv, shared);
  } catch (const Error&) {
    refuse_unknown(app);
    throw;
  }
}

int run(int argc, char** argv) {
  CLI::App app(
      "Makes token shards out of text, synthetic tasks, takes models in and out, and shows what is in data "
      "files.",
      "katadata");
  SharedOptions shared;
  SynthOptions mqar_options, overwrite_options;
  TokenizeOptions tokenize_options;
  SentencePieceOptions train_options;
  FileOptions inspect_options, detokenize_options;
  ExportOptions export_options;
  ImportOptions import_options;
  add_log_options(app, shared);
  app.require_subcommand(1)->fallthrough()->footer(example);

  auto* synth_command = app.add_subcommand("synth", "write a synthetic task as arrays");
  auto* mqar = synth_command->require_subcommand(1)->add_subcommand("mqar", "multi-query associative recall");
  add_mqar(*mqar, mqar_options);
  auto* overwrite = synth_command->add_subcommand("overwrite", "recall of keys that are bound again");
  add_overwrite(*overwrite, overwrite_options);
  auto* tokenize_command = app.add_subcommand("tokenize", "text to token shards");
  add_tokenize(*tokenize_command, tokenize_options);
  auto* train_command = app.add_subcommand("train-tokenizer", "a sentencepiece model out of text");
  add_train_tokenizer(*train_command, train_options);
  auto* inspect_command =
      app.add_subcommand("inspect", "what is in a token shard, .npz or .safetensors file");
  add_files(*inspect_command, inspect_options, "files to look at");
  auto* detokenize_command = app.add_subcommand("detokenize", "token shards to text, on standard output");
  add_files(*detokenize_command, detokenize_options, "token shards, joined in this order");
  auto* export_command =
      app.add_subcommand("export", "a softmax model as a folder in the Llama layout of Hugging Face");
  add_export(*export_command, export_options);
  auto* import_command = app.add_subcommand("import", "such a folder as a checkpoint");
  add_import(*import_command, import_options);
  if (!parse_commands(app, argc, argv, shared)) return 0;

  if (mqar->parsed()) synth(mqar_options);
  if (overwrite->parsed()) synth(overwrite_options);
  if (tokenize_command->parsed()) report(tokenize(tokenize_options));
  if (train_command->parsed()) train_tokenizer(train_options);
  if (export_command->parsed()) export_llama(export_options);
  if (import_command->parsed()) import_llama(import_options);
  if (inspect_command->parsed()) {
    const auto tokenizer = make_tokenizer(inspect_options.tokenizer);
    for (const std::string& file : inspect_options.files) print(inspect(file, *tokenizer));
  }
  if (detokenize_command->parsed())
    detokenize(detokenize_options.files, *make_tokenizer(detokenize_options.tokenizer), print);
  return 0;
}

}  // namespace
}  // namespace kata

int main(int argc, char** argv) {
  return kata::run_main("katadata", argc, argv, [&] { return kata::run(argc, argv); });
}
