#include "tasks/mqar.h"

#include <algorithm>
#include <new>

#include "base/arena.h"
#include "base/error.h"
#include "data/batch.h"
#include "tasks/slot_choice.h"

namespace kata {

namespace {

constexpr int64_t largest_vocab = int64_t{1} << 24;
constexpr int64_t most_entries = int64_t{1} << 30;  // examples times pairs of one set: 12 GiB

}  // namespace

void check_mqar(const MqarSpec& s) {
  const auto refuse = [&](const char* expected) {
    fail(ExitCode::usage, "mqar: length {}, pairs {}, examples {}, vocab {}: {}", s.length, s.pairs,
         s.examples, s.vocab, expected);
  };
  if (s.examples < 1) refuse("expected at least 1 example");
  if (s.pairs < 1) refuse("expected at least 1 pair");
  if (s.length % 2 != 0) refuse("the length must be even");
  if (s.pairs > s.length / 4)
    refuse("4 * pairs must not exceed the length; lengthen the rows or ask for fewer pairs");
  if (s.vocab > largest_vocab) refuse("expected a vocabulary of at most 16777216");
  if (s.vocab <= s.length) refuse("the vocabulary must be larger than the length");
  if (s.pairs > s.vocab / 2 - 1) refuse("there are only vocab / 2 - 1 keys; ask for fewer pairs");
  if (s.examples > most_entries / s.pairs) refuse("examples * pairs must not exceed 1073741824");
}

MqarData::MqarData(const MqarSpec& spec) : spec_(spec) {
  check_mqar(spec);
  const int64_t m = spec.pairs;
  const auto entries = static_cast<size_t>(spec.examples * m);
  try {
    for (auto* column : {&keys_, &values_, &slots_}) column->resize(entries);
  } catch (const std::bad_alloc&) {
    fail(ExitCode::device, "mqar: no memory for {} examples of {} pairs ({}); ask for fewer", spec.examples,
         m, human_bytes(3 * entries * sizeof(int32_t)));
  }

  NumpyRandom random(spec.seed);
  draw_ids(random, 1, spec.vocab / 2, spec.examples, m, keys_);
  draw_ids(random, spec.vocab / 2, spec.vocab, spec.examples, m, values_);

  SlotChoice choice((spec.length - 2 * m) / 2);
  for (int64_t row = 0; row < spec.examples; ++row) choice.draw(random, slots_.data() + row * m, m);
}

void MqarData::render(int64_t row, int32_t* inputs, int32_t* targets) const {
  KATA_CHECK(row >= 0 && row < spec_.examples, "row {} of {}", row, spec_.examples);
  std::fill_n(inputs, spec_.length, 0);
  std::fill_n(targets, spec_.length, kNoTarget);
  const int64_t m = spec_.pairs;
  for (int64_t p = 0; p < m; ++p) {
    const auto at = static_cast<size_t>(row * m + p);
    inputs[2 * p] = keys_[at];
    inputs[2 * p + 1] = values_[at];
    const int64_t query = 2 * m + 2 * int64_t{slots_[at]};
    inputs[query] = keys_[at];
    targets[query] = values_[at];
  }
}

void MqarData::questions(int64_t row, std::vector<Question>& questions) const {
  KATA_CHECK(row >= 0 && row < spec_.examples, "row {} of {}", row, spec_.examples);
  const int64_t m = spec_.pairs;
  questions.resize(static_cast<size_t>(m));
  for (int64_t p = 0; p < m; ++p) {
    const auto at = static_cast<size_t>(row * m + p);
    Question& question = questions[static_cast<size_t>(p)];
    question.position = 2 * m + 2 * int64_t{slots_[at]};
    question.key = keys_[at];
    question.values.assign(1, values_[at]);
  }
}

SegmentSeeds segment_seeds(uint32_t seed, int64_t train, int64_t test) {
  NumpyRandom random(seed);
  SegmentSeeds seeds;
  for (int64_t i = 0; i < train; ++i) seeds.train.push_back(random.next() & 0x7fffffffu);
  for (int64_t i = 0; i < test; ++i) seeds.test.push_back((random.next() & 0x7fffffffu) | 0x80000000u);
  return seeds;
}

}  // namespace kata
