// Writes the flight records of a process to a file, on SIGUSR2 and for a StallError.
//
// A background thread waits for the signal, so a dump works even if the application computes, hangs in MPI or holds the
// GIL. The thread starts with the first engine, never ends, and sleeps on a semaphore that the signal handler posts.
// `python -m pycollectives dump` finds processes that answer by its name, "pyc-flight". A forked child has neither
// thread nor handler until it makes an engine.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "core/lock_order.h"
#include "diagnostics/flight_recorder.h"

namespace pyc {

class FlightDump {
 public:
  static FlightDump& instance() { return *current; }

  /// Adds a recorder to all dumps until `remove`. The first call starts the thread and installs the handler, unless
  /// SIGUSR2 already has a handler or is ignored, or PYC_SIGUSR2=0. No other thread may be changing the environment.
  void add(const FlightRecorder* recorder);
  /// Returns once the recorder is no longer read.
  void remove(const FlightRecorder* recorder);

  /// The rank in MPI_COMM_WORLD, for the file name.
  void set_world_rank(Rank rank);
  /// Whether PYC_DUMP_DIR is set.
  bool has_directory();

  /// Returns the records of all engines of this process as one JSON object. `reason`: the cause of the dump.
  std::string document(const std::string& reason);
  /// Writes a document and returns the path of its file. Throws std::system_error.
  std::string write(const std::string& document);

 private:
  FlightDump() { sem_init(&wanted_, 0, 0); }
  static void on_signal(int);
  void listen();
  [[noreturn]] void loop();

  static std::atomic<FlightDump*> current;  // never destroyed: the thread outlives static objects

  Ordered<LockRank::kRecorders> mutex_;
  std::vector<const FlightRecorder*> recorders_;
  std::string directory_;
  std::string job_;  // the id of the batch job, or the host name
  Rank world_rank_ = 0;
  std::uint64_t written_ = 0;
  bool has_begun_ = false;
  sem_t wanted_{};
};

}  // namespace pyc
