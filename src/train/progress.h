// The line a person watches: a bar on a terminal, plain lines every few steps elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace kata {

class Progress {
 public:
  // Counts from `done` of `total` steps; plain lines every `every` steps. Writes to stderr.
  Progress(int64_t total, int64_t done, int64_t every);
  ~Progress();

  // One step more of `tokens`; `text` holds the metrics to show ("loss 1.93").
  void advance(int64_t tokens, const std::string& text);
  // A line of its own (validation, checkpoint), above the bar.
  void note(const std::string& text);
  double tokens_per_second() const { return step_rate_; }  // of the last step

 private:
  void draw(const std::string& text);

  using Clock = std::chrono::steady_clock;
  int64_t total_, done_, every_, start_;
  bool terminal_;
  bool line_open_ = false;
  Clock::time_point begin_, last_;
  double step_rate_ = 0;
  double rate_ = 0;  // smoothed over the last steps, for the eye
};

std::string human_seconds(double seconds);  // "1:05", "2:01:09"

}  // namespace kata
