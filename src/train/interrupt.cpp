#include "train/interrupt.h"

#include <csignal>

namespace kata {

namespace {

volatile std::sig_atomic_t signal_seen = 0;

void on_signal(int signal) {
  signal_seen = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

void catch_interrupts() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

bool interrupted() {
  return signal_seen != 0;
}

}  // namespace kata
