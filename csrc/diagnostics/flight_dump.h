// Writes the flight records of a process to a file: at SIGUSR2, and for a StallError.
//
// A thread of its own waits for the signal, so that it is answered although the application computes for minutes, hangs
// in MPI or holds the GIL. It begins with the first engine and never ends; it sleeps on a semaphore, which is all that
// the signal's handler touches. Its name "pyc-flight" tells `python -m pycollectives dump` which processes answer. A
// fork has neither the thread nor the handler, until it makes an engine of its own.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "diagnostics/flight_recorder.h"

namespace pyc {

class FlightDump {
 public:
  static FlightDump& instance() { return *current; }

  /// The recorder is read from now on, until it is removed. The first one starts the thread and installs the handler,
  /// unless SIGUSR2 has one or is ignored, or PYC_SIGUSR2=0. Where nobody can be changing the environment.
  void add(const FlightRecorder* recorder);
  /// Returns when it is not read any more.
  void remove(const FlightRecorder* recorder);

  /// In MPI_COMM_WORLD; for the file's name.
  void set_world_rank(Rank rank);
  /// Whether PYC_DUMP_DIR is set.
  bool has_directory();

  /// The records of all engines of this process, as one JSON object. `reason`: what for.
  std::string document(const std::string& reason);
  /// Writes a document, and returns the file's path; std::system_error.
  std::string write(const std::string& document);

 private:
  FlightDump() { sem_init(&wanted_, 0, 0); }
  static void on_signal(int);
  void listen();
  [[noreturn]] void loop();

  static std::atomic<FlightDump*> current;  // never destroyed: the thread outlives static objects

  std::mutex mutex_;
  std::vector<const FlightRecorder*> recorders_;
  std::string directory_;
  std::string job_;  // as its users call it, else this machine
  Rank world_rank_ = 0;
  std::uint64_t written_ = 0;
  bool has_begun_ = false;
  sem_t wanted_{};
};

}  // namespace pyc
