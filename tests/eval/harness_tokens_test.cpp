// From strings to tokens, windows and batches.
#include <algorithm>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>

#include "base/error.h"
#include "eval/harness/python_text.h"
#include "eval/harness/token_scorer.h"

namespace kata::harness {
namespace {

// A word is a token together with the blank or line end before it; "joined next" is one token, so that a
// border can be eaten. Ids are given in the order of appearance; 0 ends a text.
class WordTokenizer : public Tokenizer {
 public:
  explicit WordTokenizer(int32_t document = 0) : document_(document) {}

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (size_t at = 0; at < text.size();) {
      size_t end = at + 1;
      const size_t word = text[at] == ' ' ? at + 1 : at;
      if (text.substr(word).starts_with("joined next"))
        end = word + 11;
      else if (text.substr(at).starts_with("<s>"))
        end = at + 3;
      else
        while (end < text.size() && text[end] != ' ' && text[end] != '\n') ++end;
      ids.push_back(id_of(std::string(text.substr(at, end - at))));
      at = end;
    }
    return ids;
  }
  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string text;
    for (const int32_t id : ids) text += decode_next(id);
    return text;
  }
  std::string decode_next(int32_t id) const override { return words_.at(static_cast<size_t>(id)); }
  int64_t vocab() const override { return 100; }
  std::string name() const override { return "words"; }
  int32_t document_token() const override { return document_; }
  std::string file_name() const override { return ""; }
  std::string serialise() const override { return ""; }

 private:
  int32_t id_of(const std::string& word) const {
    const auto id = static_cast<int32_t>(std::find(words_.begin(), words_.end(), word) - words_.begin());
    if (id == static_cast<int32_t>(words_.size())) words_.push_back(word);
    return id;
  }
  int32_t document_;
  mutable std::vector<std::string> words_ = {"<s>"};
};

// Says that token t after token p has likelihood -(p + 2 t + inputs), and goes on counting down to 0.
class CountingModel : public TokenModel {
 public:
  int64_t vocab() const override { return 100; }
  std::vector<Likelihood> score(const std::vector<Row>& rows) override {
    batches.push_back(rows.size());
    std::vector<Likelihood> answers;
    for (const Row& row : rows) {
      Likelihood answer;
      for (size_t i = 0; i < row.targets.size(); ++i)
        answer.sum -= row.inputs[row.inputs.size() - row.targets.size() + i] + 2 * row.targets[i];
      answer.sum -= static_cast<double>(row.inputs.size());
      answer.greedy = row.targets.size() == 1;
      answers.push_back(answer);
    }
    return answers;
  }
  void generate(const std::vector<int32_t>& prompt, int64_t max_tokens,
                const std::function<bool(int32_t)>& more) override {
    prompts.push_back(prompt);
    int32_t token = prompt.back();
    for (int64_t i = 0; i < max_tokens && more(--token); ++i) {
    }
  }

  std::vector<size_t> batches;
  std::vector<std::vector<int32_t>> prompts;
};

using Ids = std::vector<int32_t>;
const RequestsDone always = [](int64_t, int64_t) { return true; };

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

struct Words {
  WordTokenizer tokenizer;
  TokenRules rules{&tokenizer, -1, 0, 8};
  std::string text(const Ids& ids) const { return tokenizer.decode(ids); }
  TokenPair pair(const std::string& context, const std::string& continuation) const {
    return encode_pair(rules, context, continuation, "here");
  }
};

TEST(HarnessTokens, WhiteSpaceAtTheBorderGoesToTheContinuation) {
  const Words words;
  for (const char* border : {" ", "  ", "\n", " \n "}) {
    const TokenPair pair = words.pair(std::string("a b") + border, "c d");
    EXPECT_EQ(words.text(pair.context), "a b") << border;
    EXPECT_EQ(words.text(pair.continuation), border + std::string("c d"));
  }
  EXPECT_EQ(words.text(words.pair("\na", " c").context), "\na");
}

TEST(HarnessTokens, AsManyTokensAsTheContextHasAreCutOff) {
  const Words words;
  // "joined next" is one token of the whole: what is left begins behind it.
  const TokenPair pair = words.pair("a joined", " next c");
  EXPECT_EQ(words.text(pair.context), "a joined");
  EXPECT_EQ(words.text(pair.continuation), " c");
  const std::string message = refusal([&] { words.pair("joined", " next"); });
  EXPECT_TRUE(message.starts_with("here: the continuation \" next\" has no token of its own")) << message;
}

TEST(HarnessTokens, AnEmptyContextIsThePrefix) {
  const Words words;
  const TokenPair pair = words.pair("", "a b");
  EXPECT_EQ(pair.context, Ids{0});
  EXPECT_EQ(words.text(pair.continuation), "a b");
  const TokenPair begun = words.pair("", "<s>a b");
  EXPECT_EQ(begun.context, Ids{0});
  EXPECT_EQ(words.text(begun.continuation), "a b");
}

TEST(HarnessTokens, ABeginTokenIsPartOfTheContext) {
  Words words;
  words.rules.bos = 0;
  const TokenPair pair = words.pair("a b", " c");
  EXPECT_EQ(words.text(pair.context), "<s>a b");
  EXPECT_EQ(words.text(pair.continuation), " c");
  EXPECT_EQ(words.text(words.pair("", "a").context), "<s>");
}

TEST(HarnessTokens, RulesOfVersionsAndTokenizers) {
  const WordTokenizer words;
  EXPECT_EQ(token_rules(words, compat_preset("lm-eval-head"), 8).bos, -1);
  EXPECT_EQ(token_rules(words, compat_preset("lm-eval-head"), 8).prefix, 0);
  Compat compat;
  compat.bos = BosPolicy::on;
  EXPECT_EQ(token_rules(words, compat, 8).bos, 0);
  compat.prefix = Prefix::id;
  compat.prefix_id = 5;
  EXPECT_EQ(token_rules(words, compat, 8).prefix, 5);
  compat.prefix_id = 100;
  EXPECT_NE(refusal([&] { token_rules(words, compat, 8); }).find("--prefix 100"), std::string::npos);
  const auto bytes = make_tokenizer("bytes");
  EXPECT_EQ(token_rules(*bytes, Compat{}, 8).prefix, '\n');
  compat = Compat{};
  compat.bos = BosPolicy::on;
  EXPECT_NE(refusal([&] { token_rules(*bytes, compat, 8); }).find("--bos on"), std::string::npos);
}

// Whether a text begins with a token, and with which, is what the tokenizer's own file says.
TEST(HarnessTokens, BeginTokenOfATokenizerJson) {
  if (!has_case_tables()) GTEST_SKIP() << "a build without ICU reads no tokenizer.json";
  const std::string folder = KATA_SOURCE_DIR "/tests/data/fixtures/";
  const auto llama3 = make_tokenizer(folder + "llama3.json"), gpt2 = make_tokenizer(folder + "gpt2.json");
  TokenRules rules = token_rules(*llama3, compat_preset("lm-eval-head"), 8);
  EXPECT_EQ(rules.bos, 1500);
  EXPECT_EQ(rules.prefix, 1500);
  EXPECT_EQ(encode_pair(rules, "In the", " beginning", "").context.front(), 1500);
  const auto twice = encode_pair(rules, "<|begin_of_text|>In the", " beginning", "").context;
  EXPECT_EQ(twice, encode_pair(rules, "In the", " beginning", "").context);
  rules = token_rules(*llama3, compat_preset("lm-eval-0.4.8"), 8);
  EXPECT_EQ(rules.bos, -1);
  EXPECT_EQ(rules.prefix, 1500);
  rules = token_rules(*gpt2, compat_preset("lm-eval-head"), 8);
  EXPECT_EQ(rules.bos, -1);
  EXPECT_EQ(rules.prefix, 1200);
}

TEST(HarnessTokens, LeftTruncation) {
  constexpr int64_t length = 6;
  for (const int64_t total : {length - 1, length, length + 1, length + 2}) {
    TokenPair pair;
    for (int32_t i = 0; i < total; ++i) (i < total - 2 ? pair.context : pair.continuation).push_back(i);
    bool cut = false;
    const Row row = scored_row(pair, length, "here", cut);
    EXPECT_EQ(static_cast<int64_t>(row.inputs.size()), std::min(total - 1, length));
    EXPECT_EQ(row.inputs.back(), total - 2);
    EXPECT_EQ(row.targets, pair.continuation);
    EXPECT_EQ(cut, total > length + 1) << total;
  }
  TokenPair longer{{0}, Ids(7, 1)};
  bool cut = false;
  EXPECT_NE(
      refusal([&] { scored_row(longer, length, "here", cut); }).find("here: a continuation of 7 tokens"),
      std::string::npos);
}

TEST(HarnessTokens, RollingWindows) {
  Ids tokens(10);
  std::iota(tokens.begin(), tokens.end(), 0);
  const std::vector<Row> rows = rolling_rows(tokens, 77, 4);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].inputs, (Ids{77, 0, 1, 2}));
  EXPECT_EQ(rows[0].targets, (Ids{0, 1, 2, 3}));
  EXPECT_EQ(rows[1].inputs, (Ids{3, 4, 5, 6}));
  EXPECT_EQ(rows[1].targets, (Ids{4, 5, 6, 7}));
  EXPECT_EQ(rows[2].inputs, (Ids{5, 6, 7, 8}));
  EXPECT_EQ(rows[2].targets, (Ids{8, 9}));
}

TEST(HarnessTokens, RollingWindowsOfEveryLength) {
  constexpr int64_t length = 5;
  for (const int64_t n :
       {int64_t{0}, int64_t{1}, length - 1, length, length + 1, 2 * length, 2 * length + 1}) {
    Ids tokens(static_cast<size_t>(n)), targets;
    std::iota(tokens.begin(), tokens.end(), 0);
    const std::vector<Row> rows = rolling_rows(tokens, 99, length);
    EXPECT_EQ(static_cast<int64_t>(rows.size()), (n + length - 1) / length) << n;
    for (const Row& row : rows) {
      EXPECT_EQ(static_cast<int64_t>(row.inputs.size()), std::min(length, n)) << n;
      // Each target follows the input at its place.
      for (size_t i = 0; i < row.targets.size(); ++i) {
        const int32_t before = row.inputs[row.inputs.size() - row.targets.size() + i];
        EXPECT_EQ(before, row.targets[i] == 0 ? 99 : row.targets[i] - 1);
      }
      targets.insert(targets.end(), row.targets.begin(), row.targets.end());
    }
    EXPECT_EQ(targets, tokens) << n;
  }
}

// ---- the scorer on top ----

std::vector<Request> requests() {
  return {{RequestKind::loglikelihood, "a", " b"},
          {RequestKind::loglikelihood, "a b c d e f g h i j", " k"},
          {RequestKind::loglikelihood, "a b c", " d e"},
          {RequestKind::loglikelihood, "", "a"},
          {RequestKind::loglikelihood, "a b", " c"}};
}
std::vector<Asked> asked(const std::vector<Request>& list) {
  std::vector<Asked> all;
  for (const Request& request : list) all.push_back({&request, "document"});
  return all;
}

TEST(TokenScorer, AnswersDoNotDependOnTheBatch) {
  const Words words;
  const std::vector<Request> list = requests();
  std::vector<double> first;
  for (const int64_t batch : {1, 2, 32}) {
    CountingModel model;
    TokenScorer scorer(model, words.rules, batch, "counting");
    int64_t finished = 0;
    const auto answers = scorer.loglikelihood(asked(list), [&](int64_t requests, int64_t) {
      finished += requests;
      return true;
    });
    std::vector<double> sums;
    for (const Likelihood& answer : answers) sums.push_back(answer.sum);
    if (batch == 1) first = sums;
    EXPECT_EQ(sums, first);
    EXPECT_EQ(finished, 5);
    EXPECT_EQ(scorer.truncated(), 1);
    EXPECT_TRUE(answers[0].greedy);
    EXPECT_FALSE(answers[2].greedy);
    EXPECT_EQ(model.batches.size(), static_cast<size_t>((5 + batch - 1) / batch));
  }
  // a, b are tokens 1 and 2: -(1 + 2 * 2) - one input.
  EXPECT_EQ(first[0], -6);
}

TEST(TokenScorer, RollingSumsItsWindows) {
  Words words;
  words.rules.max_length = 2;
  CountingModel model;
  TokenScorer scorer(model, words.rules, 2, "counting");
  const std::vector<Request> list = {{RequestKind::rolling, "", "x y z"}, {RequestKind::rolling, "", ""}};
  const Ids ids = words.tokenizer.encode("x y z");
  // [0, x] -> x, y and [x, y] -> z
  const double expected = -(0 + 2 * ids[0] + ids[0] + 2 * ids[1]) - 2 - (ids[1] + 2 * ids[2]) - 2;
  EXPECT_EQ(scorer.rolling(asked(list), always), (std::vector<double>{expected, 0}));
}

TEST(TokenScorer, GenerationEndsAtAStopAndAtTheEndOfText) {
  Words words;
  words.rules.max_length = 6;
  words.tokenizer.encode("one\n two three four five");  // 1: one, 2: the line's end, 3: two, ...
  CountingModel model;
  TokenScorer scorer(model, words.rules, 4, "counting");
  Request stopped{RequestKind::generate, " five", "", {"\n"}, 5}, ended = stopped, cut = stopped;
  stopped.context = "one\n two three four five";
  ended.until = {};
  ended.context = "one\n two";
  cut.until = {};
  cut.max_tokens = 2;
  const std::vector<Request> list = {stopped, ended, cut};
  const std::vector<std::string> texts = scorer.generate(asked(list), always);
  EXPECT_EQ(texts.at(0), " four three two");
  EXPECT_EQ(texts.at(1), "\none");  // then the token that ends a text
  EXPECT_EQ(texts.at(2), " four three");
  // Six tokens are read, five are written: one is left of the prompt.
  EXPECT_EQ(model.prompts[0].size(), 1u);
  EXPECT_EQ(scorer.truncated(), 2);
  Request too_long = stopped;
  too_long.max_tokens = 6;
  EXPECT_NE(refusal([&] { scorer.generate(asked({too_long}), always); }).find("raise --max-length"),
            std::string::npos);
}

TEST(TokenScorer, WorkThatIsEndedGivesNoAnswers) {
  const Words words;
  CountingModel model;
  TokenScorer scorer(model, words.rules, 2, "counting");
  const std::vector<Request> list = requests();
  EXPECT_TRUE(scorer.loglikelihood(asked(list), [](int64_t, int64_t) { return false; }).empty());
  EXPECT_EQ(model.batches.size(), 1u);
}

TEST(TokenScorer, StopsAreCutOneAfterTheOther) {
  EXPECT_EQ(cut_at_stops(" a\nb.c", {".", "\n"}), " a");
  EXPECT_EQ(cut_at_stops("a", {}), "a");
  EXPECT_EQ(cut_at_stops("\n", {"\n"}), "");
}

}  // namespace
}  // namespace kata::harness
