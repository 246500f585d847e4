#include "node/process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <sstream>
#include <string>

namespace pyc {
namespace {

/// State and start time, fields 3 and 22 of /proc/PID/stat (proc_pid_stat(5)).
struct Stat {
  char state = '\0';
  std::uint64_t started = kStartUnknown;
};

/// nullopt if there is no such process, or if this one has no free file descriptor or may not read /proc.
std::optional<Stat> stat_of(std::int32_t number) {
  const int file = ::open(("/proc/" + std::to_string(number) + "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  char line[2048];
  const ssize_t length = ::read(file, line, sizeof line);
  ::close(file);
  if (length <= 0) return std::nullopt;
  const std::string text(line, static_cast<std::size_t>(length));
  const std::size_t end_of_name = text.rfind(')');  // a name may contain anything
  if (end_of_name == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(end_of_name + 1));
  Stat stat;
  fields >> stat.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> stat.started;
  return stat;
}

}  // namespace

ProcessId ProcessId::own() { return {getpid(), stat_of(getpid()).value_or(Stat{}).started}; }

bool exists(const ProcessId& process) { return kill(process.number, 0) == 0 || errno != ESRCH; }

ProcessState state_of(const ProcessId& process) {
  const std::optional<Stat> stat = stat_of(process.number);
  if (!stat) return exists(process) ? ProcessState::kAlive : ProcessState::kGone;
  if (process.started != kStartUnknown && stat->started != process.started) return ProcessState::kGone;
  switch (stat->state) {
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
