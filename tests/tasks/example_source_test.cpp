#include "tasks/example_source.h"

#include "base/parallel.h"
#include "support/errors.h"
#include "tasks/mqar.h"
#include "tasks/sources.h"

namespace kata {
namespace {

using test::fails_with;

TaskConfig task_of(std::vector<TaskSegment> segments) {
  TaskConfig task;
  task.vocab = 512;
  task.test_examples = 7;
  task.segments = std::move(segments);
  return task;
}

const std::vector<TaskSegment> three = {{16, 2, 10}, {64, 8, 5}, {32, 4, 8}};

TEST(ExampleSource, SeedsFollowTheTask) {
  const TaskConfig task = task_of(three);
  const auto train = train_specs(task), test = test_specs(task, validation_grid(task));
  const auto seeds = segment_seeds(123, 3, 3);
  ASSERT_EQ(train.size(), 3u);
  ASSERT_EQ(test.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(train[i].seed, seeds.train[i]);
    EXPECT_EQ(test[i].seed, seeds.test[i]);
    EXPECT_EQ(train[i].examples, three[i].examples);
    EXPECT_EQ(test[i].examples, 7);
    EXPECT_EQ(test[i].length, three[i].length);
    EXPECT_EQ(test[i].pairs, three[i].pairs);
    EXPECT_EQ(test[i].vocab, 512);
  }
  // A grid of its own draws from where the training seeds end.
  const auto grid = test_specs(task, {{128, 2, 3}});
  EXPECT_EQ(grid.at(0).seed, seeds.test[0]);
  EXPECT_EQ(grid.at(0).length, 128);
}

TEST(ExampleSource, SetsComeInOrderAndEveryExampleOnceAnEpoch) {
  const auto specs = train_specs(task_of(three));
  ExampleSource source(specs, 4);
  // ceil(10 / 4) + ceil(5 / 4) + ceil(8 / 4)
  EXPECT_EQ(source.steps_per_epoch(), 3 + 2 + 2);
  EXPECT_EQ(source.vocab(), 512);
  EXPECT_EQ(source.largest(), (BatchShape{4, 64}));
  EXPECT_EQ(source.sets(), 3);
  EXPECT_EQ(source.first_step(1), 3);
  EXPECT_EQ(source.first_step(3), 7);

  int64_t step = 0;
  Batch batch;
  for (const ExampleSpec& spec : specs) {
    const auto data = make_examples(spec);
    std::vector<int32_t> inputs(static_cast<size_t>(spec.length)), targets(inputs.size());
    for (int64_t row = 0; row < spec.examples; row += 4, ++step) {
      source.fill(step, batch);
      const int64_t rows = std::min<int64_t>(4, spec.examples - row);
      ASSERT_EQ(batch.shape, (BatchShape{rows, spec.length})) << step;
      EXPECT_EQ(source.shape(step), batch.shape);
      ASSERT_EQ(static_cast<int64_t>(batch.inputs.size()), batch.shape.tokens());
      ASSERT_EQ(batch.targets.size(), batch.inputs.size());
      for (int64_t r = 0; r < rows; ++r) {
        data->render(row + r, inputs.data(), targets.data());
        EXPECT_TRUE(std::equal(inputs.begin(), inputs.end(), batch.inputs.begin() + r * spec.length));
        EXPECT_TRUE(std::equal(targets.begin(), targets.end(), batch.targets.begin() + r * spec.length));
      }
    }
  }
  EXPECT_EQ(step, source.steps_per_epoch());
}

TEST(ExampleSource, EveryEpochIsTheSameInAnyOrder) {
  const auto specs = train_specs(task_of(three));
  set_thread_count(2);
  ExampleSource a(specs, 4);
  set_thread_count(1);
  ExampleSource b(specs, 4);
  Batch x, y;
  for (int64_t step = 6; step >= 0; --step) {
    a.fill(step, x);
    b.fill(step + 7 * 1000, y);
    EXPECT_EQ(x.shape, y.shape);
    EXPECT_EQ(x.inputs, y.inputs);
    EXPECT_EQ(x.targets, y.targets);
  }
}

TEST(ExampleSource, LargestCountsTokensNotLengths) {
  // 2 examples of 64 are fewer tokens than 8 of 32.
  ExampleSource source(train_specs(task_of({{64, 8, 2}, {32, 4, 100}})), 8);
  EXPECT_EQ(source.largest(), (BatchShape{8, 32}));
}

// The other task through the same door, as a run asks for it.
TEST(ExampleSource, OfARunOnOverwrite) {
  RunConfig run;
  run.data.task = task_of({{32, 4, 10, 2, 2, "block"}, {64, 5, 6, 1, 5, "interleaved"}});
  run.data.task->name = "overwrite";
  run.train.sequence = 64;
  run.train.batch_tokens = 4 * 64;
  const auto source = make_train_source(run), held_out = make_validation_source(run);
  EXPECT_EQ(source->steps_per_epoch(), 3 + 2);
  EXPECT_EQ(held_out->steps_per_epoch(), 2 + 2);
  EXPECT_EQ(source->vocab(), 512);
  const auto seeds = segment_seeds(123, 2, 2);
  const auto expected = make_examples({64, 5, 6, 512, seeds.train[1], "overwrite", 1, 5, "interleaved"});
  Batch batch;
  source->fill(3, batch);
  ASSERT_EQ(batch.shape, (BatchShape{4, 64}));
  std::vector<int32_t> inputs(64), targets(64);
  for (int64_t row = 0; row < 4; ++row) {
    expected->render(row, inputs.data(), targets.data());
    EXPECT_TRUE(std::equal(inputs.begin(), inputs.end(), batch.inputs.begin() + row * 64));
    EXPECT_TRUE(std::equal(targets.begin(), targets.end(), batch.targets.begin() + row * 64));
  }
  held_out->fill(0, batch);
  EXPECT_EQ(batch.shape, (BatchShape{4, 32}));
}

TEST(ExampleSource, RefusesImpossibleTasks) {
  EXPECT_TRUE(fails_with(ExitCode::usage, {"no segments"}, [] { ExampleSource source({}, 4); }));
  EXPECT_TRUE(fails_with(ExitCode::usage, {"even"}, [] { train_specs(task_of({{15, 2, 4}})); }));
  EXPECT_TRUE(fails_with(ExitCode::usage, {"4 * pairs"}, [] { test_specs(task_of(three), {{16, 5, 4}}); }));
  EXPECT_TRUE(fails_with(ExitCode::usage, {"larger than the length"}, [] {
    train_specs(task_of({{512, 2, 4}}));
  }));
  EXPECT_TRUE(fails_with(ExitCode::usage, {"512 and 600"}, [] {
    ExampleSource source({{16, 2, 4, 512, 0}, {16, 2, 4, 600, 0}}, 4);
  }));
}

}  // namespace
}  // namespace kata
