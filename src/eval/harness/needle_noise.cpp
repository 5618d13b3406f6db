#include "eval/harness/needle_noise.h"

#include "base/error.h"

namespace kata::harness {

namespace {

constexpr const char* sentences =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

}  // namespace

Needle draw_needle(PythonRandom& random, const std::vector<std::string>& words, int64_t repetitions) {
  KATA_CHECK(!words.empty() && repetitions > 0, "{} words, {} repetitions", words.size(), repetitions);
  Needle needle;
  needle.key = words[random.below(words.size())];
  needle.value = std::to_string(random.integer(1'000'000, 9'999'999));
  needle.line = random.sample(repetitions, 1)[0];
  random.sample(1, 1);  // which of the one keys is asked for
  std::string haystack;
  for (int64_t i = 0; i < repetitions; ++i) {
    if (i == needle.line)
      haystack += fmt::format("One of the special magic numbers for {} is: {}.\n", needle.key, needle.value);
    haystack += sentences;
    if (i + 1 < repetitions) haystack += '\n';
  }
  needle.prompt = fmt::format(
      "A special magic number is hidden within the following text. Make sure to memorize it. I will quiz you "
      "about the number afterwards.\n{}\nWhat is the special magic number for {} mentioned in the provided "
      "text?",
      haystack, needle.key);
  needle.answer_prefix =
      fmt::format(" The special magic number for {} mentioned in the provided text is", needle.key);
  return needle;
}

}  // namespace kata::harness
