#include "train/progress.h"

#include <cstdio>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

namespace kata {

Progress::Progress(int64_t total, int64_t done, int64_t every)
    : total_(total), done_(done), every_(every), start_(done), terminal_(isatty(STDERR_FILENO) == 1) {
  begin_ = last_ = Clock::now();
}

Progress::~Progress() {
  if (line_open_) std::fputc('\n', stderr);
}

void Progress::advance(int64_t tokens, const std::string& text) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - last_).count();
  last_ = now;
  ++done_;
  if (seconds > 0) {
    step_rate_ = static_cast<double>(tokens) / seconds;
    rate_ = rate_ == 0 ? step_rate_ : 0.9 * rate_ + 0.1 * step_rate_;
  }
  if (terminal_ || done_ % every_ == 0 || done_ == total_ || done_ == start_ + 1) draw(text);
}

void Progress::draw(const std::string& text) {
  const double elapsed = std::chrono::duration<double>(last_ - begin_).count();
  const double left = elapsed / static_cast<double>(done_ - start_) * static_cast<double>(total_ - done_);
  const std::string status =
      fmt::format("step {}/{}  {}  {:.0f} tokens/s  ETA {}", done_, total_, text, rate_, human_seconds(left));
  if (!terminal_) {
    std::fprintf(stderr, "%s\n", status.c_str());
    return;
  }
  constexpr int64_t width = 24;
  const int64_t filled = total_ > 0 ? done_ * width / total_ : width;
  const std::string bar =
      std::string(static_cast<size_t>(filled), '=') + std::string(static_cast<size_t>(width - filled), ' ');
  std::fprintf(stderr, "\r\033[K[%s] %s", bar.c_str(), status.c_str());
  std::fflush(stderr);
  line_open_ = true;
}

void Progress::note(const std::string& text) {
  std::fprintf(stderr, line_open_ ? "\r\033[K%s\n" : "%s\n", text.c_str());
  line_open_ = false;
}

std::string human_seconds(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace kata
