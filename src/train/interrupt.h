// SIGINT and SIGTERM as a flag that the loop reads between steps; the second signal ends the process at once.
#pragma once

namespace kata {

void catch_interrupts();  // installs the handlers, once
bool interrupted();       // a signal has come

}  // namespace kata
