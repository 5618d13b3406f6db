#include "tasks/overwrite.h"

#include <algorithm>
#include <new>
#include <numeric>

#include "base/arena.h"
#include "base/error.h"
#include "data/batch.h"
#include "tasks/slot_choice.h"

namespace kata {

namespace {

constexpr int64_t largest_vocab = int64_t{1} << 24;
constexpr int64_t most_entries = int64_t{1} << 29;  // examples times bindings of one set: 8 GiB
constexpr int64_t most_tokens = int64_t{1} << 40;   // no count is above; products of two fit in 64 bits

// The first `rewritten` of a random order of the keys 0 .. pairs - 1.
void draw_keys(NumpyRandom& random, std::vector<uint32_t>& keys, int64_t pairs, int64_t rewritten) {
  keys.resize(static_cast<size_t>(pairs));
  std::iota(keys.begin(), keys.end(), 0u);
  random.shuffle(keys.data(), static_cast<uint32_t>(pairs), static_cast<uint32_t>(rewritten));
  keys.resize(static_cast<size_t>(rewritten));
}

void shuffle_all(NumpyRandom& random, std::vector<uint32_t>& entries) {
  const auto size = static_cast<uint32_t>(entries.size());
  random.shuffle(entries.data(), size, size);
}

}  // namespace

void check_overwrite(const OverwriteSpec& s) {
  const auto refuse = [&](const std::string& expected) {
    fail(ExitCode::usage,
         "overwrite: length {}, pairs {}, rewrites {}, rewritten {}, layout {}, examples {}, vocab {}: {}",
         s.length, s.pairs, s.rewrites, s.rewritten, s.layout, s.examples, s.vocab, expected);
  };
  if (s.layout != "block" && s.layout != "interleaved" && s.layout != "zoology")
    refuse("expected layout block, interleaved or zoology");
  if (s.examples < 1) refuse("expected at least 1 example");
  if (s.pairs < 1) refuse("expected at least 1 pair");
  if (s.rewrites < 1) refuse("expected at least 1 rewrite; without one the task is mqar");
  if (s.rewritten < 1 || s.rewritten > s.pairs) refuse("expected 1 to pairs rewritten keys");
  if (s.layout == "zoology" && s.rewrites != 1) refuse("the zoology layout has exactly 1 rewrite");
  if (s.length % 2 != 0) refuse("the length must be even");
  // Each on its own first, so that their sum cannot overflow.
  const bool fits = s.length <= most_tokens && s.pairs <= s.length / 4 &&
                    s.rewrites <= s.length / 2 / s.rewritten && 2 * s.bindings() + 2 * s.pairs <= s.length;
  if (!fits)
    refuse(
        "2 * (pairs + rewrites * rewritten) + 2 * pairs must not exceed the length; lengthen the rows or ask "
        "for fewer");
  if (s.vocab > largest_vocab) refuse("expected a vocabulary of at most 16777216");
  // With pairs and bindings below a quarter and a half of it, there are keys and values enough.
  if (s.vocab <= s.length) refuse("the vocabulary must be larger than the length");
  if (s.examples > most_entries / s.bindings())
    refuse("examples * (pairs + rewrites * rewritten) must not exceed 536870912");
}

OverwriteData::OverwriteData(const OverwriteSpec& spec) : spec_(spec) {
  check_overwrite(spec);
  const int64_t m = spec.pairs, n = spec.bindings();
  const auto questions = static_cast<size_t>(spec.examples * m);
  const auto bindings = static_cast<size_t>(spec.examples * n);
  try {
    for (auto* column : {&keys_, &slots_}) column->resize(questions);
    for (auto* column : {&order_, &values_}) column->resize(bindings);
  } catch (const std::bad_alloc&) {
    fail(ExitCode::device, "overwrite: no memory for {} examples of {} bindings ({}); ask for fewer",
         spec.examples, n, human_bytes(2 * (questions + bindings) * sizeof(int32_t)));
  }
  NumpyRandom random(spec.seed);
  draw_ids(random, 1, spec.vocab / 2, spec.examples, m, keys_);
  if (spec.layout == "zoology") {
    draw_as_zoology(random);
  } else {
    draw_ids(random, spec.vocab / 2, spec.vocab, spec.examples, n, values_);
    draw_order(random);
  }
  SlotChoice choice(spec.length / 2 - n);
  for (int64_t row = 0; row < spec.examples; ++row) choice.draw(random, slots_.data() + row * m, m);
}

void OverwriteData::draw_order(NumpyRandom& random) {
  const int64_t m = spec_.pairs, n = spec_.bindings();
  std::vector<uint32_t> chosen, order;
  for (int64_t row = 0; row < spec_.examples; ++row) {
    draw_keys(random, chosen, m, spec_.rewritten);
    order.resize(static_cast<size_t>(m));
    std::iota(order.begin(), order.end(), 0u);
    for (int64_t round = 0; round < spec_.rewrites; ++round) {
      if (round > 0) shuffle_all(random, chosen);
      order.insert(order.end(), chosen.begin(), chosen.end());
    }
    if (spec_.layout == "interleaved") shuffle_all(random, order);
    std::copy(order.begin(), order.end(), order_.begin() + row * n);
  }
}

void OverwriteData::draw_as_zoology(NumpyRandom& random) {
  const int64_t m = spec_.pairs, n = spec_.bindings(), updates = spec_.rewritten;
  const int64_t begin = spec_.vocab / 2, candidates = spec_.vocab - begin;
  std::vector<int32_t> first(static_cast<size_t>(spec_.examples * m));
  draw_ids(random, begin, spec_.vocab, spec_.examples, m, first);
  for (int64_t row = 0; row < spec_.examples; ++row) {
    const int32_t* old = first.data() + row * m;
    int32_t* values = values_.data() + row * n;
    std::copy(old, old + m, values);
    for (int64_t j = 0; j < updates; ++j) {
      // One of the candidates but old[j]: an index among them, old[j] left out.
      const int64_t drawn = begin + random.bounded(static_cast<uint32_t>(candidates - 2));
      values[m + j] = static_cast<int32_t>(drawn + (drawn >= old[j]));
    }
  }
  std::vector<uint32_t> chosen;
  for (int64_t row = 0; row < spec_.examples; ++row) {
    draw_keys(random, chosen, m, updates);
    int32_t* order = order_.data() + row * n;
    std::iota(order, order + m, 0);
    std::copy(chosen.begin(), chosen.end(), order + m);
  }
}

void OverwriteData::render(int64_t row, int32_t* inputs, int32_t* targets) const {
  KATA_CHECK(row >= 0 && row < spec_.examples, "row {} of {}", row, spec_.examples);
  std::fill_n(inputs, spec_.length, 0);
  std::fill_n(targets, spec_.length, kNoTarget);
  const int64_t m = spec_.pairs, n = spec_.bindings();
  const int32_t *keys = keys_.data() + row * m, *slots = slots_.data() + row * m;
  for (int64_t b = 0; b < n; ++b) {
    const int32_t p = order_[static_cast<size_t>(row * n + b)],
                  value = values_[static_cast<size_t>(row * n + b)];
    inputs[2 * b] = keys[p];
    inputs[2 * b + 1] = value;
    const int64_t question = 2 * n + 2 * int64_t{slots[p]};
    inputs[question] = keys[p];
    targets[question] = value;  // the last binding stays
  }
}

void OverwriteData::questions(int64_t row, std::vector<Question>& questions) const {
  KATA_CHECK(row >= 0 && row < spec_.examples, "row {} of {}", row, spec_.examples);
  const int64_t m = spec_.pairs, n = spec_.bindings();
  questions.resize(static_cast<size_t>(m));
  for (int64_t p = 0; p < m; ++p) {
    const auto at = static_cast<size_t>(row * m + p);
    Question& question = questions[static_cast<size_t>(p)];
    question.position = 2 * n + 2 * int64_t{slots_[at]};
    question.key = keys_[at];
    question.values.clear();
  }
  for (auto b = static_cast<size_t>(row * n); b < static_cast<size_t>((row + 1) * n); ++b)
    questions[static_cast<size_t>(order_[b])].values.push_back(values_[b]);
}

}  // namespace kata
