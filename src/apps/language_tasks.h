// The options of kataeval for language tasks, and what they ask for.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "apps/options.h"
#include "base/file.h"
#include "eval/harness/evaluation.h"
#include "eval/suite.h"

namespace kata {

struct LanguageTaskOptions {
  std::vector<std::string> tasks, compare;
  std::string model, data, compat = "lm-eval-head", bos, prefix, squad_stop;
  int64_t context_length = 0, shots = 0, batch = 8, max_length = 0, recall_version = -1, bootstrap = 100000;
  double limit = 0, tolerance = 1e-4;

  bool asked(const std::string& suite) const {
    return !tasks.empty() || !harness::suite_tasks(suite).empty();
  }
};

inline void add_language_task_options(CLI::App& app, LanguageTaskOptions& options) {
  const char* group = "Language tasks";
  const auto option = [&](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)->group(group);
  };
  option("--tasks", options.tasks, "names, separated by commas: arc_easy,piqa")->delimiter(',');
  option("--data", options.data, "folder that holds <task>.jsonl of each");
  option("--model", options.model,
         "a checkpoint (as --checkpoint), or dummy: random answers, to compare strings");
  option("--limit", options.limit, "the first so many documents of each task; below 1: that part of them")
      ->check(number("a number above 0", [](double x) { return x > 0; }));
  option("--num-fewshot", options.shots, "only 0: no examples before a document")->capture_default_str();
  option("--compat", options.compat,
         "rules of a version: lm-eval-0.4.2, 0.4.8, 0.4.9.1, 0.4.9.2, 0.4.12, head")
      ->capture_default_str();
  option("--bos", options.bos, "a begin token before each text, against --compat: auto, on, off")
      ->check(CLI::IsMember({"auto", "on", "off"}));
  option("--prefix", options.prefix, "the token before a text without context: auto, bos, eos, or an id");
  option("--recall-version", options.recall_version,
         "of swde, fda, squad_completion: 1 strips blanks, 0 does not")
      ->check(CLI::IsMember({0, 1}));
  option("--squad-stop", options.squad_stop, "what ends an answer of squad_completion: nl, nlnl")
      ->check(CLI::IsMember({"nl", "nlnl"}));
  option("--context-length", options.context_length,
         "based_* tasks: cut documents to so many tokens, 50 of them for the answer")
      ->check(CLI::Range(int64_t{harness::answer_room + 1}, int64_t{1} << 31));
  option("--max-length", options.max_length,
         "tokens the model reads at most (default: 2048, or its training's)")
      ->check(CLI::PositiveNumber);
  option("--batch-size", options.batch, "rows at a time")->check(CLI::PositiveNumber)->capture_default_str();
  option("--bootstrap", options.bootstrap, "resamplings of a perplexity's error; 0 = no errors")
      ->check(CLI::Range(int64_t{0}, int64_t{10'000'000}))
      ->capture_default_str();
  option("--compare", options.compare, "two samples files of one task: prints where they differ")
      ->expected(2);
  option("--tolerance", options.tolerance, "of likelihoods in --compare")
      ->check(within(0, 1e9))
      ->capture_default_str();
}

// The preset, and what was asked beside it.
inline harness::Compat compat_of(const LanguageTaskOptions& options) {
  using namespace harness;
  const std::string& name = options.compat;
  Compat compat = compat_preset(name.starts_with("lm-eval-") ? name : "lm-eval-" + name);
  if (!options.bos.empty())
    compat.bos = options.bos == "auto" ? BosPolicy::automatic
                 : options.bos == "on" ? BosPolicy::on
                                       : BosPolicy::off;
  if (options.recall_version >= 0) compat.recall_version = options.recall_version;
  if (!options.squad_stop.empty()) compat.squad_long_stop = options.squad_stop == "nlnl";
  if (options.prefix.empty()) return compat;
  if (options.prefix == "auto" || options.prefix == "bos" || options.prefix == "eos") {
    compat.prefix = options.prefix == "auto"  ? Prefix::automatic
                    : options.prefix == "bos" ? Prefix::bos
                                              : Prefix::eos;
  } else {
    compat.prefix = Prefix::id;
    if (!CLI::detail::lexical_cast(options.prefix, compat.prefix_id) || compat.prefix_id < 0)
      fail(ExitCode::usage, "--prefix {}: expected auto, bos, eos or the id of a token", options.prefix);
  }
  return compat;
}

inline harness::EvaluationOptions evaluation_of(const LanguageTaskOptions& options, const std::string& suite,
                                                const std::string& checkpoint, const std::string& output,
                                                const std::string& json) {
  if (options.shots != 0)
    fail(ExitCode::usage, "--num-fewshot {}: only 0 is built, as the published tables have it",
         options.shots);
  if (options.data.empty())
    fail(ExitCode::usage,
         "--data is missing; give the folder of the tasks' files (data/README.md says how to get them)");
  if (!options.model.empty() && !checkpoint.empty())
    fail(ExitCode::usage, "--model and --checkpoint say the same; leave out one of the two");
  harness::EvaluationOptions evaluation;
  evaluation.model = options.model.empty() ? checkpoint : options.model;
  if (evaluation.model.empty())
    fail(ExitCode::usage, "--model is missing; give a checkpoint, or dummy to compare strings");
  if (!is_folder(options.data)) fail(ExitCode::usage, "--data {}: is no folder", options.data);
  evaluation.run.tasks = options.tasks.empty() ? harness::suite_tasks(suite) : options.tasks;
  evaluation.run.data = options.data;
  evaluation.run.compat = compat_of(options);
  evaluation.run.context_length = options.context_length;
  evaluation.run.limit = options.limit;
  evaluation.run.bootstrap = options.bootstrap;
  const bool dummy = evaluation.model == harness::dummy_model;
  evaluation.output = output;
  if (output.empty())
    evaluation.output = "runs/eval-lm-" + (dummy ? evaluation.model : checkpoint_name(evaluation.model));
  evaluation.json = json;
  evaluation.batch = options.batch;
  evaluation.max_length = options.max_length;
  return evaluation;
}

}  // namespace kata
