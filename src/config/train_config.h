// The training run: length, batch, optimizer, logging.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "config/schema.h"

namespace kata {

struct TrainConfig {
  int64_t steps = 400;
  int64_t batch_tokens = 8192;  // tokens per optimizer step, over all processes: rows x sequence
  int64_t sequence = 256;
  uint64_t seed = 1;
  std::string precision = "fp32";
  double clip = 1.0;               // largest gradient norm; 0 = off
  int64_t micro_batch = 0;         // rows per forward pass; 0 = all at once
  int64_t validate_every = 50;     // steps; 0 = never
  int64_t validate_batches = 16;   // batches of batch_tokens; 0 = the whole validation set
  int64_t checkpoint_every = 100;  // steps; 0 = only at the end
  int64_t keep_checkpoints = 0;    // newest ones kept; 0 = all
  std::string recompute = "none";  // none, block
  int64_t threads = 0;             // 0 = all cores
  int64_t max_skips = 3;           // consecutive skipped steps before exit code 4
  double outlier_factor = 0;       // 0 = off
  std::string initial_checkpoint;  // empty = weights are drawn

  int64_t rows() const { return batch_tokens / sequence; }

  template <class Visitor>
  void visit(Visitor& v) {
    v.field("steps", steps, at_least(1), "optimizer steps");
    v.field("batch_tokens", batch_tokens, between(1, int64_t{1} << 40),
            "tokens per step over all processes, a multiple of sequence");
    v.field("sequence", sequence, between(1, int64_t{1} << 31),
            "tokens per row; with a task, at least its longest");
    v.field("seed", seed, any_seed(), "seed of initialisation, data order and sampling");
    v.field(
        "precision", precision, one_of({"fp32", "bf16", "fp64"}),
        "storage of activations and products; bf16 needs a GPU, fp64 (to check the others by) is of the CPU");
    v.field("clip", clip, nonnegative(), "largest gradient norm; 0 = no clipping");
    v.field("micro_batch", micro_batch, between(0, int64_t{1} << 31),
            "rows per forward pass, gradients accumulate over them; divides the rows; 0 = all rows at once");
    v.field("validate_every", validate_every, at_least(0), "steps between validations; 0 = never");
    v.field("validate_batches", validate_batches, at_least(0),
            "batches of a validation; 0 = the whole validation set");
    v.field("checkpoint_every", checkpoint_every, at_least(0),
            "steps between checkpoints; 0 = only the last");
    v.field("keep_checkpoints", keep_checkpoints, at_least(0), "newest checkpoints kept; 0 = all");
    v.field("recompute", recompute, one_of({"none", "block"}),
            "block: keep only the input of each block and compute the rest again; changes no bit");
    v.field("threads", threads, between(0, 4096), "processor threads; 0 = all cores; changes no bit");
    v.field("max_skips", max_skips, at_least(0),
            "consecutive steps skipped for a non-finite loss or gradient before exit code 4");
    v.field("outlier_factor", outlier_factor, zero_or_above(1),
            "skip a step whose gradient norm exceeds this times its running mean; 0 = off");
    v.field("initial_checkpoint", initial_checkpoint, text_or_none(),
            "a run or step folder whose weights this run starts from; left out = they are drawn");
  }
};

struct OptimizerConfig {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  std::string schedule = "cosine";  // constant, cosine, wsd
  int64_t warmup = 20;              // steps
  double final_lr = 1e-4;
  int64_t decay_steps = 0;  // wsd only: length of the final decay; 0 = a tenth of train.steps

  template <class Visitor>
  void visit_shared(Visitor& v) {  // all but the peak rate: a suite lists several of those
    v.field("betas", betas, below_one(), "decay rates of AdamW's two moments");
    v.field("eps", eps, positive(), "added to the root of the second moment");
    v.field("weight_decay", weight_decay, nonnegative(), "decoupled weight decay, on matrices only");
    v.field("schedule", schedule, one_of({"constant", "cosine", "wsd"}),
            "learning rate after the warm-up; wsd = stable, then a final decay");
    v.field("warmup", warmup, at_least(0), "steps of linear warm-up from 0");
    v.field("final_lr", final_lr, nonnegative(), "rate at the last step (cosine, wsd); at most the peak");
    v.field("decay_steps", decay_steps, at_least(0),
            "steps of wsd's final decay; 0 = a tenth of train.steps");
  }
  template <class Visitor>
  void visit(Visitor& v) {
    v.field("lr", lr, positive(), "peak learning rate");
    visit_shared(v);
  }
};

struct LoggingConfig {
  int64_t every = 10;

  template <class Visitor>
  void visit(Visitor& v) {
    v.field("every", every, at_least(1), "steps between console lines where the output is not a terminal");
  }
};

}  // namespace kata
