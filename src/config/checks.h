// Rules between fields that a run and a suite share. Each failure is ExitCode::usage with one line that names
// the key.
#pragma once

#include "config/data_config.h"
#include "config/model_config.h"
#include "config/train_config.h"

namespace kata {

// Fills what the task's segments leave out, and checks what the generator needs of lengths, bindings and
// vocabulary (EVAL B.1, C.1); `key`: dotted key of the segments' list.
void resolve_segments(std::vector<TaskSegment>& segments, const TaskConfig& task, const std::string& key,
                      const Origins& origins);
void resolve_task(TaskConfig& task, const std::string& key, const Origins& origins);

// model.vocab: the task's where it is 0, and never smaller.
void take_task_vocab(ModelConfig& model, const TaskConfig& task, const Origins& origins);

void check_optimizer(const OptimizerConfig& optimizer, double peak, int64_t steps, const Origins& origins);

}  // namespace kata
