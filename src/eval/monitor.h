// One progress bar over work of many kinds, and the question whether to go on.
//
// Work is counted in expected seconds, measured beforehand, so that the bar and its ETA are right although
// the steps of one model cost several times those of another.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "train/progress.h"

namespace kata {

enum class Stop { none, interrupted, out_of_time };

class Monitor {
 public:
  // minutes: 0 = no limit. interrupted: whether the user asked to stop.
  Monitor(double time_limit_minutes, std::function<bool()> interrupted);

  // Once a reason was seen it stays.
  Stop stop();

  // Starts the bar: all the work that follows, and its largest single piece, in expected seconds.
  void expect(double seconds, double largest_piece);
  // A piece is done; `text` says what is going on.
  void advance(double seconds, int64_t tokens, const std::string& text);
  void note(const std::string& text);  // a line of its own on standard error

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> deadline_;
  std::function<bool()> interrupted_;
  Stop stop_ = Stop::none;

  std::optional<Progress> progress_;
  double unit_ = 1;    // expected seconds of one step of the bar
  double done_ = 0;    // expected seconds done
  int64_t drawn_ = 0;  // steps of the bar
  int64_t total_ = 0;
  int64_t tokens_ = 0;  // since the last one
};

}  // namespace kata
