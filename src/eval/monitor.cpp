#include "eval/monitor.h"

#include <algorithm>
#include <cstdio>

namespace kata {

Monitor::Monitor(double time_limit_minutes, std::function<bool()> interrupted)
    : interrupted_(std::move(interrupted)) {
  // Beyond a thousand years there is no limit, and the clock's arithmetic would overflow.
  if (time_limit_minutes > 0 && time_limit_minutes < 5e8)
    deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double, std::ratio<60>>(time_limit_minutes));
}

Stop Monitor::stop() {
  if (stop_ == Stop::none && interrupted_()) stop_ = Stop::interrupted;
  if (stop_ == Stop::none && deadline_ && Clock::now() >= *deadline_) stop_ = Stop::out_of_time;
  return stop_;
}

void Monitor::expect(double seconds, double largest_piece) {
  constexpr double most_steps = 100'000;
  // Where the output is not a terminal: lines in all, more of them when they would be further apart than
  // that.
  constexpr double lines = 40, apart = 600;
  unit_ = std::max({seconds / most_steps, largest_piece, 1e-9});
  total_ = std::max<int64_t>(static_cast<int64_t>(seconds / unit_), 1);
  done_ = 0;
  drawn_ = tokens_ = 0;
  const double every = static_cast<double>(total_) / std::max(lines, seconds / apart);
  progress_.emplace(total_, 0, std::max<int64_t>(static_cast<int64_t>(every), 1));
}

void Monitor::advance(double seconds, int64_t tokens, const std::string& text) {
  done_ += seconds;
  tokens_ += tokens;
  if (!progress_) return;
  while (drawn_ < total_ && done_ >= unit_ * static_cast<double>(drawn_ + 1)) {
    progress_->advance(tokens_, text);
    ++drawn_;
    tokens_ = 0;
  }
}

void Monitor::note(const std::string& text) {
  if (progress_)
    progress_->note(text);
  else
    std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace kata
