#include "tasks/example_set.h"

#include "base/error.h"
#include "tasks/mqar.h"
#include "tasks/overwrite.h"

namespace kata {

namespace {

MqarSpec mqar_of(const ExampleSpec& s) {
  return {s.length, s.pairs, s.examples, s.vocab, s.seed};
}
OverwriteSpec overwrite_of(const ExampleSpec& s) {
  return {s.length, s.pairs, s.examples, s.vocab, s.seed, s.rewrites, s.rewritten, s.layout};
}

}  // namespace

ExampleSet::~ExampleSet() = default;

std::unique_ptr<ExampleSet> make_examples(const ExampleSpec& spec) {
  check_examples(spec);
  if (spec.task == "overwrite") return std::make_unique<OverwriteData>(overwrite_of(spec));
  return std::make_unique<MqarData>(mqar_of(spec));
}

void check_examples(const ExampleSpec& spec) {
  KATA_CHECK(spec.task == "mqar" || spec.task == "overwrite", "task {}", spec.task);
  if (spec.task == "overwrite") return check_overwrite(overwrite_of(spec));
  check_mqar(mqar_of(spec));
}

}  // namespace kata
