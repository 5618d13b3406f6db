// What a model is asked for a document: strings only (layer one of the harness; EVAL A.1).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/harness/document.h"

namespace kata::harness {

enum class RequestKind { loglikelihood, rolling, generate };

struct Request {
  RequestKind kind = RequestKind::loglikelihood;
  std::string context;       // rolling: empty
  std::string continuation;  // rolling: the whole text; generate: empty
  std::vector<std::string> until = {};
  int64_t max_tokens = 0;  // generate
  // generate: the settings as sample files show them, in their order.
  Json settings = {};
};

// A document's requests and what its answers are held against.
struct Item {
  Json document;  // as sample files show it
  std::vector<Request> requests;
  std::string target;                // likewise
  int64_t gold = 0;                  // index of the right choice
  std::vector<std::string> choices;  // whose lengths divide in acc_norm and acc_bytes
  std::vector<std::string> answers;  // that are looked for in what was generated
  int64_t words = 0, bytes = 0;      // of a rolling text, counted before it was changed
};

}  // namespace kata::harness
