// What changed between versions of lm-evaluation-harness and moves published numbers (EVAL 0.1).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kata::harness {

enum class BosPolicy { automatic, on, off };  // automatic: what the tokenizer itself does
enum class Prefix { automatic, bos, eos, id };

struct Compat {
  std::string name;
  BosPolicy bos = BosPolicy::automatic;  // before each request's tokens
  // What stands before a rolling text and in place of an empty context; automatic: bos, else eos.
  Prefix prefix = Prefix::automatic;
  int32_t prefix_id = -1;       // with Prefix::id
  int64_t recall_version = 1;   // of swde, fda, squad_completion: 1 strips text and value
  bool squad_long_stop = true;  // squad_completion ends at an empty line instead of at a line's end
  int64_t squad_tokens = 256;
};

// lm-eval-0.4.2, -0.4.8, -0.4.9.1, -0.4.9.2, -0.4.12, -head. ExitCode::usage for another name.
Compat compat_preset(const std::string& name);
std::vector<std::string> compat_names();

}  // namespace kata::harness
