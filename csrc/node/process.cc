#include "node/process.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace pyc {
namespace {

/// State and start time, fields 3 and 22 of /proc/PID/stat (proc_pid_stat(5)). '\0' if there is no such process.
struct Stat {
  char state = '\0';
  std::uint64_t started = 0;
};

Stat stat_of(std::int32_t number) {
  std::ifstream file("/proc/" + std::to_string(number) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t end_of_name = text.rfind(')');  // a name may contain anything
  if (end_of_name == std::string::npos) return {};
  std::istringstream fields(text.substr(end_of_name + 1));
  Stat stat;
  fields >> stat.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> stat.started;
  return stat;
}

}  // namespace

ProcessId ProcessId::own() { return {getpid(), stat_of(getpid()).started}; }

bool exists(const ProcessId& process) { return kill(process.number, 0) == 0 || errno != ESRCH; }

ProcessState state_of(const ProcessId& process) {
  const Stat stat = stat_of(process.number);
  if (stat.started != process.started) return ProcessState::kGone;
  switch (stat.state) {
    case '\0':
    case 'Z':
    case 'X':
      return ProcessState::kGone;
    case 'T':
    case 't':
      return ProcessState::kStopped;
    default:
      return ProcessState::kAlive;
  }
}

}  // namespace pyc
