#include "tasks/mqar_source.h"

#include "base/parallel.h"
#include "support/errors.h"

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

TEST(MqarSource, SeedsFollowTheTask) {
  const TaskConfig task = task_of(three);
  const auto train = mqar_train_specs(task), test = mqar_test_specs(task, mqar_validation_grid(task));
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
  const auto grid = mqar_test_specs(task, {{128, 2, 3}});
  EXPECT_EQ(grid.at(0).seed, seeds.test[0]);
  EXPECT_EQ(grid.at(0).length, 128);
}

TEST(MqarSource, SetsComeInOrderAndEveryExampleOnceAnEpoch) {
  const auto specs = mqar_train_specs(task_of(three));
  MqarSource source(specs, 4);
  // ceil(10 / 4) + ceil(5 / 4) + ceil(8 / 4)
  EXPECT_EQ(source.steps_per_epoch(), 3 + 2 + 2);
  EXPECT_EQ(source.vocab(), 512);
  EXPECT_EQ(source.largest(), (BatchShape{4, 64}));
  EXPECT_EQ(source.sets(), 3);
  EXPECT_EQ(source.first_step(1), 3);
  EXPECT_EQ(source.first_step(3), 7);

  int64_t step = 0;
  Batch batch;
  for (const MqarSpec& spec : specs) {
    const MqarData data(spec);
    std::vector<int32_t> inputs(static_cast<size_t>(spec.length)), targets(inputs.size());
    for (int64_t row = 0; row < spec.examples; row += 4, ++step) {
      source.fill(step, batch);
      const int64_t rows = std::min<int64_t>(4, spec.examples - row);
      ASSERT_EQ(batch.shape, (BatchShape{rows, spec.length})) << step;
      EXPECT_EQ(source.shape(step), batch.shape);
      ASSERT_EQ(static_cast<int64_t>(batch.inputs.size()), batch.shape.tokens());
      ASSERT_EQ(batch.targets.size(), batch.inputs.size());
      for (int64_t r = 0; r < rows; ++r) {
        data.render(row + r, inputs.data(), targets.data());
        EXPECT_TRUE(std::equal(inputs.begin(), inputs.end(), batch.inputs.begin() + r * spec.length));
        EXPECT_TRUE(std::equal(targets.begin(), targets.end(), batch.targets.begin() + r * spec.length));
      }
    }
  }
  EXPECT_EQ(step, source.steps_per_epoch());
}

TEST(MqarSource, EveryEpochIsTheSameInAnyOrder) {
  const auto specs = mqar_train_specs(task_of(three));
  set_thread_count(2);
  MqarSource a(specs, 4);
  set_thread_count(1);
  MqarSource b(specs, 4);
  Batch x, y;
  for (int64_t step = 6; step >= 0; --step) {
    a.fill(step, x);
    b.fill(step + 7 * 1000, y);
    EXPECT_EQ(x.shape, y.shape);
    EXPECT_EQ(x.inputs, y.inputs);
    EXPECT_EQ(x.targets, y.targets);
  }
}

TEST(MqarSource, LargestCountsTokensNotLengths) {
  // 2 examples of 64 are fewer tokens than 8 of 32.
  MqarSource source(mqar_train_specs(task_of({{64, 8, 2}, {32, 4, 100}})), 8);
  EXPECT_EQ(source.largest(), (BatchShape{8, 32}));
}

TEST(MqarSource, RefusesImpossibleTasks) {
  EXPECT_TRUE(fails_with(ExitCode::usage, {"no segments"}, [] { MqarSource source({}, 4); }));
  EXPECT_TRUE(fails_with(ExitCode::usage, {"even"}, [] { mqar_train_specs(task_of({{15, 2, 4}})); }));
  EXPECT_TRUE(fails_with(ExitCode::usage, {"4 * pairs"}, [] {
    mqar_test_specs(task_of(three), {{16, 5, 4}});
  }));
  EXPECT_TRUE(fails_with(ExitCode::usage, {"larger than the length"}, [] {
    mqar_train_specs(task_of({{512, 2, 4}}));
  }));
  EXPECT_TRUE(fails_with(ExitCode::usage, {"512 and 600"}, [] {
    MqarSource source({{16, 2, 4, 512, 0}, {16, 2, 4, 600, 0}}, 4);
  }));
}

}  // namespace
}  // namespace kata
