// Documents inside a row of tokens: a model sees each of them as if it stood alone.
#include <cstring>

#include "nn/model_cases.h"

namespace kata {
namespace {

using test::Named;
using test::SmallModel;

constexpr int64_t time_steps = 13, vocab = 19;

// Lengths of the documents of each row: one of a single token in the middle, at both ends of the row, at the
// borders of chunks of 4, the last token alone, and one document only.
const std::vector<std::vector<int64_t>> rows = {{5, 1, 7}, {1, 11, 1}, {4, 4, 5}, {12, 1}, {13}};
const auto batch = static_cast<int64_t>(rows.size());

std::vector<int32_t> starts_of_rows() {
  std::vector<int32_t> starts;
  for (const auto& lengths : rows) {
    int64_t begin = 0;
    for (const int64_t length : lengths) {
      starts.insert(starts.end(), static_cast<size_t>(length), static_cast<int32_t>(begin));
      begin += length;
    }
  }
  return starts;
}

struct Tokens {
  std::vector<int32_t> inputs, targets, starts = {};  // starts empty: one document a row

  Tokens part(size_t begin, size_t end) const {
    const auto cut = [&](const std::vector<int32_t>& x) {
      return std::vector<int32_t>(x.begin() + static_cast<std::ptrdiff_t>(begin),
                                  x.begin() + static_cast<std::ptrdiff_t>(end));
    };
    return {cut(inputs), cut(targets)};
  }
};

Tokens joined(uint64_t seed = 1) {
  return {test::random_tokens(batch * time_steps, vocab, seed, false),
          test::random_tokens(batch * time_steps, vocab, 2, true), starts_of_rows()};
}

enum class Pass { evaluate, gradients };

// Losses of every token. Gradients are added to those of the model, scaled by 0.1. The arena is planned
// without documents, as training plans it.
template <class T>
std::vector<T> losses(LanguageModel& model, Tokens tokens, int64_t count, Pass pass) {
  const auto n = static_cast<int64_t>(tokens.inputs.size());
  std::vector<T> out(tokens.inputs.size());
  const Shape shape{count, n / count};
  const auto ids = [&](std::vector<int32_t>& x) { return Tensor(x.data(), DType::i32, shape); };
  const auto run = [&](Arena& arena, const Tensor& starts) {
    Context ctx{arena};
    const Tensor to(out.data(), dtype_of<T>, {n});
    if (pass == Pass::gradients)
      model.forward_backward(ctx, to, ids(tokens.inputs), ids(tokens.targets), 0.1, starts);
    else
      model.evaluate(ctx, to, {}, ids(tokens.inputs), ids(tokens.targets), starts);
  };
  Arena plan;
  run(plan, {});
  Arena arena(plan.peak());
  run(arena, tokens.starts.empty() ? Tensor() : ids(tokens.starts));
  EXPECT_EQ(arena.peak(), plan.peak());
  return out;
}

// Each document as a row of its own.
template <class T>
std::vector<T> losses_apart(LanguageModel& model, const Tokens& tokens, Pass pass) {
  std::vector<T> out;
  size_t begin = 0;
  for (const auto& lengths : rows)
    for (const int64_t length : lengths) {
      const size_t end = begin + static_cast<size_t>(length);
      const auto part = losses<T>(model, tokens.part(begin, end), 1, pass);
      out.insert(out.end(), part.begin(), part.end());
      begin = end;
    }
  return out;
}

template <class T>
std::vector<T> take_gradients(LanguageModel& model) {
  const Tensor g = model.parameters().gradients();
  std::vector<T> out(g.as<T>(), g.as<T>() + g.numel());
  std::memset(g.data(), 0, g.bytes());
  return out;
}

class Documents : public ::testing::TestWithParam<Named> {
 protected:
  // The model in every training form that its mixers have.
  template <class Body>
  void for_forms(DType dtype, Body&& body) const {
    for (const std::string form : {"auto", "quadratic", "chunked", "recurrent"}) {
      SCOPED_TRACE(form);
      ModelConfig config = GetParam().config;
      for (MixerConfig& m : config.mixers) {
        if (m.softmax()) continue;
        m.form = form == "quadratic" && m.delta() ? "auto" : form;
        m.chunk = form == "chunked" ? 4 : m.chunk;
      }
      SmallModel small(config, dtype, 1, 1);
      test::spread(small.model);
      body(small.model);
    }
  }
  const test::Threads one{1};
  const Tokens tokens = joined();
};

template <class T>
void expect_near(const std::vector<T>& a, const std::vector<T>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    EXPECT_TRUE(std::abs(x - y) <= tolerance * std::max(1.0, std::abs(y)))
        << "row " << i / time_steps << " token " << i % time_steps << ": " << x << " against " << y;
  }
}

TEST_P(Documents, LossesAndGradientsAreThoseOfTheDocumentsApart) {
  for_forms(DType::f64, [&](LanguageModel& model) {
    take_gradients<double>(model);
    const auto together = losses<double>(model, tokens, batch, Pass::gradients);
    const auto gradients = take_gradients<double>(model);
    expect_near(together, losses_apart<double>(model, tokens, Pass::gradients), 1e-10);
    const auto sum = take_gradients<double>(model);
    for (const Parameter& p : model.parameters().all()) {
      const auto n = static_cast<size_t>(p.shape.numel()), at = static_cast<size_t>(p.offset);
      const double error = test::relative_error(gradients.data() + at, sum.data() + at, n);
      EXPECT_TRUE(error <= 1e-9) << p.name << ": relative error " << error;
    }
    expect_near(losses<double>(model, tokens, batch, Pass::evaluate), together, 0);
  });
}

// The tokens are such that no query and key of a document's first token are nearly orthogonal: the recurrent
// form adds up their score out of features of either sign, and float has few digits of it left there.
TEST_P(Documents, LossesInFloat) {
  const Tokens good = joined(13);
  for_forms(DType::f32, [&](LanguageModel& model) {
    expect_near(losses<float>(model, good, batch, Pass::evaluate),
                losses_apart<float>(model, good, Pass::evaluate), 1e-5);
  });
}

// What the other tests rest on: a document that sees the one before it has other losses.
TEST_P(Documents, WithoutStartsTheyLeakIntoEachOther) {
  for_forms(DType::f64, [&](LanguageModel& model) {
    Tokens blind = tokens;
    blind.targets = test::random_tokens(batch * time_steps, vocab, 3, false);
    blind.starts.clear();
    Tokens seeing = blind;
    seeing.starts = tokens.starts;
    const auto a = losses<double>(model, blind, batch, Pass::evaluate);
    const auto b = losses<double>(model, seeing, batch, Pass::evaluate);
    for (size_t i = 0; i < a.size(); ++i) {
      if (tokens.starts[i] == 0)
        EXPECT_EQ(a[i], b[i]) << i;
      else
        EXPECT_GT(std::abs(a[i] - b[i]), 1e-7) << i;
    }
  });
}

TEST_P(Documents, AChangeInOneLeavesTheOthersEqualToTheBit) {
  for_forms(DType::f32, [&](LanguageModel& model) {
    Tokens changed = tokens;
    changed.targets = test::random_tokens(batch * time_steps, vocab, 3, false);
    const auto before = losses<float>(model, changed, batch, Pass::evaluate);
    for (const size_t at : {size_t{2}, size_t{5}, 2 * static_cast<size_t>(time_steps) + 3}) {
      Tokens other = changed;
      other.inputs[at] = (other.inputs[at] + 1) % static_cast<int32_t>(vocab);
      const auto after = losses<float>(model, other, batch, Pass::evaluate);
      EXPECT_NE(before[at], after[at]) << at;
      for (size_t i = 0; i < before.size(); ++i) {
        const bool same_document = i / time_steps == at / time_steps && tokens.starts[i] == tokens.starts[at];
        if (same_document && i >= at) continue;
        EXPECT_EQ(before[i], after[i]) << "token " << i << " after a change of token " << at;
      }
    }
  });
}

TEST_P(Documents, GradientsAgainstCentralDifferences) {
  for_forms(DType::f64, [&](LanguageModel& model) {
    take_gradients<double>(model);
    losses<double>(model, tokens, batch, Pass::gradients);
    const auto gradients = take_gradients<double>(model);
    const auto loss = [&] {
      double sum = 0;
      for (const double x : losses<double>(model, tokens, batch, Pass::evaluate)) sum += 0.1 * x;
      return sum;
    };
    uint64_t trial = 0;
    for (const Parameter& p : model.parameters().all()) {
      if (p.name.rfind("blocks.0.mixer.", 0) != 0) continue;
      const auto n = static_cast<uint64_t>(p.shape.numel());
      const auto i = static_cast<size_t>(Philox(1, stream_test).below(++trial, n));
      double& x = p.value.as<double>()[i];
      const double start = x;
      const auto slope = [&](double h) {
        x = start + h;
        const double up = loss();
        x = start - h;
        const double down = loss();
        x = start;
        return (up - down) / (2 * h);
      };
      const double measured = (4 * slope(5e-5) - slope(1e-4)) / 3;
      const double expected = gradients[static_cast<size_t>(p.offset) + i];
      EXPECT_TRUE(std::abs(measured - expected) <= 1e-6 * std::abs(expected) + 1e-8)
          << p.name << " entry " << i << ": " << measured << " against " << expected;
    }
    EXPECT_GT(trial, 1u);
  });
}

TEST_P(Documents, NeitherRecomputeNorThreadsChangeABit) {
  const auto gradients = [&](bool recompute) {
    SmallModel small(GetParam().config, DType::f32, 1, 1, recompute);
    take_gradients<float>(small.model);
    losses<float>(small.model, tokens, batch, Pass::gradients);
    return take_gradients<float>(small.model);
  };
  const auto kept = gradients(false);
  EXPECT_EQ(gradients(true), kept);
  const test::Threads two(2);
  EXPECT_EQ(gradients(false), kept);
}

INSTANTIATE_TEST_SUITE_P(Mixers, Documents, ::testing::ValuesIn(test::cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kata
