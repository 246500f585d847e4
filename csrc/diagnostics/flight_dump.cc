#include "diagnostics/flight_dump.h"

#include <pthread.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigaction
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <utility>

#include "core/background_thread.h"
#include "diagnostics/json.h"

namespace pyc {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

/// Renames a complete temporary file, so that the file at `path` is never incomplete.
void write_file(const std::string& path, const std::string& temporary, const std::string& text) {
  std::FILE* const file = std::fopen(temporary.c_str(), "we");
  if (file != nullptr) {
    const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (std::fclose(file) == 0 && whole && std::rename(temporary.c_str(), path.c_str()) == 0) return;
  }
  const std::system_error error(errno, std::generic_category(), "cannot write " + path);
  std::remove(temporary.c_str());
  throw error;
}

}  // namespace

std::atomic<FlightDump*> FlightDump::current{new FlightDump};

void FlightDump::add(const FlightRecorder* recorder) {
  static const int forgets = pthread_atfork(nullptr, nullptr, [] {  // in the child
    struct sigaction now{};
    if (sigaction(SIGUSR2, nullptr, &now) == 0 && now.sa_handler == &on_signal) signal(SIGUSR2, SIG_DFL);
    current = new FlightDump;
  });
  static_cast<void>(forgets);
  const std::lock_guard lock(mutex_);
  directory_ = variable("PYC_DUMP_DIR");
  job_ = host_name();
  for (const char* const name : {"JOB_ID", "FLUX_JOB_ID", "LSB_JOBID", "PBS_JOBID", "SLURM_JOB_ID"}) {
    if (const std::string job = variable(name); !job.empty()) job_ = job;
  }
  std::replace(job_.begin(), job_.end(), '/', '_');
  recorders_.push_back(recorder);
  if (!std::exchange(has_begun_, true) && variable("PYC_SIGUSR2") != "0") listen();
}

void FlightDump::remove(const FlightRecorder* recorder) {
  const std::lock_guard lock(mutex_);
  std::erase(recorders_, recorder);
}

void FlightDump::set_world_rank(Rank rank) {
  const std::lock_guard lock(mutex_);
  world_rank_ = rank;
}

bool FlightDump::has_directory() {
  const std::lock_guard lock(mutex_);
  return !directory_.empty();
}

void FlightDump::on_signal(int) {
  const int error = errno;
  sem_post(&current.load(std::memory_order_relaxed)->wanted_);
  errno = error;
}

/// Installs the handler before the thread starts: the dump command signals each process that has the thread.
void FlightDump::listen() {
  struct sigaction before{};
  if (sigaction(SIGUSR2, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
  struct sigaction ours{};
  ours.sa_flags = SA_RESTART;
  ours.sa_handler = &on_signal;
  sigaction(SIGUSR2, &ours, nullptr);
  try {
    background_thread("pyc-flight", [this] { loop(); }).detach();
  } catch (const std::system_error&) {  // no thread: restore the default action
    sigaction(SIGUSR2, &before, nullptr);
  }
}

void FlightDump::loop() {
  for (;;) {
    while (sem_wait(&wanted_) != 0) {
    }
    while (sem_trywait(&wanted_) == 0) {  // one file answers all requests so far
    }
    try {
      write(document("SIGUSR2"));
    } catch (const std::exception& error) {
      std::fprintf(stderr, "pycollectives: SIGUSR2: %s\n", error.what());
    }
  }
}

std::string FlightDump::document(const std::string& reason) {
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  const std::lock_guard lock(mutex_);
  std::string text = "{\"format\":1,\"pid\":" + std::to_string(getpid()) + ",\"host\":" + json_string(host_name()) +
                     ",\"world_rank\":" + std::to_string(world_rank_) + ",\"unix_time_s\":" +
                     std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) +
                     ",\"reason\":" + json_string(reason) + ",\"communicators\":[";
  for (const FlightRecorder* const recorder : recorders_) {
    if (text.back() != '[') text += ",\n";
    text += recorder->json();
  }
  return text + "]}\n";
}

std::string FlightDump::write(const std::string& document) {
  std::string path;
  std::string temporary;
  {
    const std::lock_guard lock(mutex_);
    path = (directory_.empty() ? std::string() : directory_ + "/") + "pycollectives-" + job_ + "-rank" +
           std::to_string(world_rank_) + "-" + std::to_string(getpid()) + ".json";
    temporary = path + "." + std::to_string(++written_) + ".tmp";
  }
  write_file(path, temporary, document);
  return path;
}

}  // namespace pyc
