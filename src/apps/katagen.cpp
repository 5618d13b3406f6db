// katagen: samples text from a checkpoint, token by token, in memory that does not grow with the length.

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "apps/options.h"
#include "base/file.h"
#include "base/parallel.h"
#include "data/tokenizer.h"
#include "nn/generator.h"
#include "nn/sampling.h"
#include "train/inference_model.h"
#include "train/interrupt.h"

namespace kata {
namespace {

constexpr const char* example = R"(
Example: 300 bytes after a prompt, the same ones each time
  katagen --checkpoint runs/quickstart --prompt "In the beginning" --tokens 300 --temperature 0.8 --seed 1

The text goes to standard output, messages to standard error.)";

struct Options {
  SharedOptions shared;
  std::string checkpoint, prompt, prompt_file;
  int64_t tokens = 256, threads = 0;
  SamplingOptions sampling;
  bool timing = false;
};

std::vector<int32_t> prompt_tokens(const std::string& text, const Tokenizer& tokenizer, int64_t vocab) {
  std::vector<int32_t> ids = tokenizer.encode(text);
  if (ids.empty())  // a model needs something to go on from
    ids = tokenizer.document_token() >= 0 ? std::vector<int32_t>{tokenizer.document_token()}
                                          : tokenizer.encode("\n");
  for (const int32_t id : ids)
    if (id >= vocab)
      fail(ExitCode::data,
           "the prompt holds token {}, the model's vocabulary has {}: tokenizer {} does not fit it", id,
           vocab, tokenizer.name());
  return ids;
}

// Seconds a token, reported at powers of ten, so that a user sees that it does not grow.
class StepTimer {
 public:
  explicit StepTimer(bool active) : active_(active) {}
  void count() {
    if (!active_ || ++tokens_ != next_) return;
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    logger().info("tokens {}..{}: {:.2f} us a token", begin_, tokens_,
                  1e6 * seconds / static_cast<double>(tokens_ - begin_));
    begin_ = tokens_;
    next_ *= 10;
    last_ = now;
  }

 private:
  bool active_;
  int64_t tokens_ = 0, begin_ = 0, next_ = 100;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

ExitCode generate(const Options& options) {
  set_thread_count(options.threads > 0 ? static_cast<int>(options.threads) : 1);
  const ChosenProcessor processor(options.shared);
  InferenceModel loaded(options.checkpoint, processor.get(), InferenceModel::Precision::as_trained);
  if (loaded.config().data.task)
    fail(ExitCode::usage, "{}: this model was trained on the task {}, it has no text to write; use kataeval",
         options.checkpoint, loaded.config().data.task->name);
  const auto tokenizer = load_tokenizer(loaded.checkpoint_folder(), loaded.config().data.tokenizer);
  const int64_t vocab = loaded.model().config().vocab;
  const std::string text = options.prompt_file.empty() ? options.prompt : read_file(options.prompt_file);
  std::vector<int32_t> prompt = prompt_tokens(text, *tokenizer, vocab);

  // A document is not seen from the next one, as in training.
  const int64_t document_token = loaded.config().data.document_token;
  const auto last = std::find(prompt.rbegin(), prompt.rend(), document_token);
  if (last != prompt.rend()) prompt.erase(prompt.begin(), last.base() - 1);
  Generator generator(loaded.model(), static_cast<int64_t>(prompt.size()) + options.tokens, 1,
                      processor.get());
  logger().debug("state and scratch: {}", human_bytes(generator.memory()));
  Sampler sampler(options.sampling);
  StepTimer timer(options.timing);
  const float* logits = generator.start({prompt});
  std::fwrite(text.data(), 1, text.size(), stdout);
  catch_interrupts();
  for (int64_t i = 0; i < options.tokens && !interrupted(); ++i) {
    const int32_t token = sampler.next(logits, vocab);
    const std::string piece = tokenizer->decode_next(token);
    if (std::fwrite(piece.data(), 1, piece.size(), stdout) != piece.size()) break;  // reported at exit
    if (token == document_token) generator.reset();
    if (i + 1 < options.tokens)
      logits = token == document_token ? generator.start({{token}}) : generator.feed({token});
    timer.count();
  }
  std::fputc('\n', stdout);
  return interrupted() ? ExitCode::interrupted : ExitCode::ok;
}

int run(int argc, char** argv) {
  CLI::App app("Samples text from a trained model.", "katagen");
  Options options;
  app.add_option("--checkpoint", options.checkpoint, "a run (its latest checkpoint) or one step folder")
      ->required();
  auto* prompt = app.add_option("--prompt", options.prompt, "text to go on from");
  app.add_option("--prompt-file", options.prompt_file, "file that holds it")->excludes(prompt);
  app.add_option("--tokens", options.tokens, "tokens to write")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--temperature", options.sampling.temperature, "0 = always the most likely token")
      ->check(within(0, 100))
      ->capture_default_str();
  app.add_option("--top-k", options.sampling.top_k, "choose among the k most likely; 0 = all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--top-p", options.sampling.top_p, "choose among the likeliest that reach this probability")
      ->check(within(0, 1))
      ->capture_default_str();
  app.add_option("--seed", options.sampling.seed, "of the draws")->capture_default_str();
  app.add_option("--threads", options.threads, "0 = one, the fastest for small models")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--timing", options.timing, "report the time a token takes as the text grows");
  add_device_option(app, options.shared);
  add_log_options(app, options.shared);
  app.footer(example);
  if (!parse(app, argc, argv, options.shared)) return 0;
  return static_cast<int>(generate(options));
}

}  // namespace
}  // namespace kata

int main(int argc, char** argv) {
  return kata::run_main("katagen", argc, argv, [&] { return kata::run(argc, argv); });
}
