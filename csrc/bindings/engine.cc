// Engines on MPI communicators and on loopback threads.
#include <mpi.h>

#include <mpi4py/mpi4py.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/calls.h"
#include "core/background_thread.h"
#include "core/error.h"
#include "diagnostics/flight_dump.h"
#include "engine/engine.h"
#include "engine/environment.h"
#include "engine/progress_thread.h"
#include "transport/loopback.h"
#include "transport/mpi_transport.h"

namespace pyc {
namespace {

Progress progress_from(const std::string& name) {
  if (name == "thread") return Progress::kThread;
  if (name == "caller") return Progress::kCaller;
  throw std::invalid_argument("progress: expected 'thread' or 'caller', got '" + name + "'");
}

/// Ends this process after `limit` seconds, because MPI_Finalize need not return after a rank has died.
void bound_finalize(Seconds limit) {
  if (limit < 0) return;
  background_thread("pyc-end", [=] {
    std::this_thread::sleep_for(std::chrono::duration<Seconds>(limit));
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (is_finalized != 0) return;
    std::fputs("pycollectives: a rank has died, and MPI_Finalize does not return: ending this process\n", stderr);
    std::_Exit(1);
  }).detach();
}

/// Open engines on MPI. MPI_Finalize must find none that still uses MPI.
class OpenEngines {
 public:
  static OpenEngines& instance() {
    static auto* const engines = new OpenEngines;
    return *engines;
  }

  /// `exit_timeout`: how long MPI_Finalize waits for the other ranks, in seconds.
  void add(const std::shared_ptr<Engine>& engine, Seconds exit_timeout) {
    const std::lock_guard lock(mutex_);
    if (!hooked_) {
      at_mpi_finalize([this] {
        // mpi4py's MPI.Finalize holds the GIL. Other ranks may wait for a function that this rank's server calls.
        const GilReleased released(Py_IsInitialized() != 0 && PyGILState_Check() != 0);
        close_all();
        if (failed_) bound_finalize(exit_timeout_);
      });
      hooked_ = true;
    }
    std::erase_if(engines_, [](const auto& e) { return e->is_freed(); });
    engines_.push_back(engine);
    exit_timeout_ = exit_timeout;
  }

  /// The survivors of a death have another communicator, so the failure of this one is not reported at the end.
  void supersede(const std::shared_ptr<Engine>& engine) {
    const std::lock_guard lock(mutex_);
    superseded_.push_back(engine);
  }

  /// Serves the other ranks until all have closed everything that is open here.
  void close_all() {
    std::vector<std::shared_ptr<Engine>> engines;
    {
      const std::lock_guard lock(mutex_);
      engines.swap(engines_);
    }
    for (const std::shared_ptr<Engine>& engine : engines) {
      if (engine->is_freed() || !engine->is_in_own_process()) continue;
      try {
        if (!engine->closed()) engine->abort();
        engine->close(exit_timeout_, {});
      } catch (const RankFailedError& error) {  // the launcher lets the other ranks live, so this one continues
        failed_ = true;
        if (is_superseded(engine)) continue;
        std::fprintf(stderr, "pycollectives: rank %d, at the end: %s\n", engine->rank(), error.what());
      } catch (const std::exception& error) {
        if (is_superseded(engine)) continue;
        std::fprintf(stderr, "pycollectives: rank %d, at the end: %s; ending the job\n", engine->rank(), error.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
    }
  }

 private:
  bool is_superseded(const std::shared_ptr<Engine>& engine) {
    const std::lock_guard lock(mutex_);
    return std::find(superseded_.begin(), superseded_.end(), engine) != superseded_.end();
  }

  std::mutex mutex_;
  bool hooked_ = false;
  std::atomic<bool> failed_{false};
  Seconds exit_timeout_ = 0;
  std::vector<std::shared_ptr<Engine>> engines_;  // strong: other ranks need them after Python has dropped them
  std::vector<std::shared_ptr<Engine>> superseded_;
};

/// Keeps the engine until the process ends, even if Python drops it.
void keep_serving(std::shared_ptr<Engine> engine) {
  static std::mutex mutex;
  static auto* const engines = new std::vector<std::shared_ptr<Engine>>;
  const std::lock_guard lock(mutex);
  engines->push_back(std::move(engine));
}

/// The destructor waits for the progress thread, which may wait for the GIL.
std::shared_ptr<Engine> make_engine(std::unique_ptr<Transport> transport, Engine::Options options,
                                    std::unique_ptr<Trace> trace) {
  return {new Engine(std::move(transport), std::move(options), std::move(trace)), DeletedWithoutGil<Engine>()};
}

std::string mpi_library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  return {text.data(), static_cast<std::size_t>(length)};
}

using Neighbours = std::vector<std::tuple<Rank, std::int32_t, std::uint64_t>>;

std::shared_ptr<Engine> on_mpi(const py::object& comm, Rank local_ranks, const Neighbours& neighbours,
                               const std::string& progress, Timeout exit_timeout) {
  MPI_Comm* const handle = PyMPIComm_Get(comm.ptr());
  if (handle == nullptr) throw py::error_already_set();
  const Progress how = progress_from(progress);
  const GilReleased released;  // duplicating is collective, and the progress thread may wait for the GIL
  auto transport = std::make_unique<MpiTransport>(*handle, local_ranks);
  std::string group = std::to_string(transport->group());
  auto trace = trace_from_environment(*transport, next_communicator(), group);
  Engine::Options options{.progress = how,
                          .transport_name = "mpi",
                          .flight_rounds = flight_rounds(),
                          .group = std::move(group),
                          .stall_warning = stall_warning()};
  for (const auto& [rank, number, started] : neighbours) options.neighbours.push_back({rank, {number, started}});
  const auto engine = make_engine(std::move(transport), std::move(options), std::move(trace));
  int world_rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  FlightDump::instance().set_world_rank(world_rank);
  OpenEngines::instance().add(engine, exit_timeout);
  return engine;
}

std::vector<std::shared_ptr<Engine>> on_loopback(Rank size, const std::string& progress, double delay,
                                                 std::uint64_t seed) {
  std::vector<std::shared_ptr<Engine>> engines;
  const int communicator = next_communicator();
  const Engine::Options options{.progress = progress_from(progress),
                                .transport_name = "loopback",
                                .flight_rounds = flight_rounds(),
                                .group = "loopback " + std::to_string(communicator),
                                .stall_warning = stall_warning()};
  const GilReleased released;  // the progress thread may wait for the GIL
  for (auto& transport : make_loopback(size, delay, seed)) {
    auto trace = trace_from_environment(*transport, communicator, options.group);
    engines.push_back(make_engine(std::move(transport), options, std::move(trace)));
  }
  return engines;
}

}  // namespace

void bind_engine(py::module_& m) {
  if (import_mpi4py() < 0) throw py::error_already_set();  // its C API is per translation unit
  Definitions(m).function("own_process", "", [] {
    const ProcessId own = ProcessId::own();
    return std::pair(own.number, own.started);
  });
  Definitions(m).function<&mpi_library_version>("mpi_library_version", "");
  Definitions(m).function("close_all", "", [] { without_gil([] { OpenEngines::instance().close_all(); }); });
  const py::class_<Engine, std::shared_ptr<Engine>> engine(m, "Engine");
  Definitions(engine)
      .function<&on_mpi>("mpi", "comm, *, local_ranks, neighbours=(), progress='thread', exit_timeout=60.0")
      .function<&on_loopback>("loopback", "size, *, progress='thread', delay=0.0, seed=0")
      .property<&Engine::rank>("rank")
      .property<&Engine::size>("size")
      .property<&Engine::is_in_own_process>("in_own_process")
      .property<&Engine::transport_name>("transport")
      .property("progress", [](const Engine& e) { return e.progress() == Progress::kThread ? "thread" : "caller"; })
      .method("compare", "local, *, what, timeout=None",
              [](Engine& e, const std::string& local, const std::string& what, Timeout timeout) -> py::object {
                const Engine::Texts all =
                    without_gil([&] { return e.compare(local, what, timeout, run_signal_handlers); });
                if (!all) return py::none();
                py::list texts;
                for (const std::string& text : *all) texts.append(py::bytes(text));
                return texts;
              })
      .method("advance", "",
              [](Engine& e) {
                const GilReleased released;
                const bool moved = e.advance();
                e.check();
                return moved;
              })
      .method("close", "*, timeout=None",
              [](Engine& e, Timeout timeout) { without_gil([&] { e.close(timeout, run_signal_handlers); }); })
      .method("announce", "text", kWithoutGil<&Engine::announce>)
      .method("abort", "",
              [](const std::shared_ptr<Engine>& e) {
                const GilReleased released;
                e->abort();
                keep_serving(e);
              })
      .method("start_heartbeat", "*, machines, limit", kWithoutGil<&Engine::start_heartbeat>)
      .method("check_usable", "", kWithoutGil<&Engine::check>)
      .method("mpi_duplicate", "",
              [](Engine& e) -> py::object {
                e.check_process();
                const auto* const transport = dynamic_cast<const MpiTransport*>(&e.transport());
                int has_ended = 0;
                MPI_Finalized(&has_ended);
                if (transport == nullptr || has_ended != 0 || transport->duplicate() == MPI_COMM_NULL) {
                  return py::none();
                }
                return py::reinterpret_steal<py::object>(PyMPIComm_New(transport->duplicate()));
              })
      .method("acknowledge_failed", "",
              [](Engine& e) {
                const auto* const transport = dynamic_cast<const MpiTransport*>(&e.transport());
                const GilReleased released;
                return transport == nullptr ? std::nullopt : transport->acknowledge_failed();
              })
      .property("all_closed", kWithoutGil<&Engine::all_closed>)
      .method("stop", "failed", kWithoutGil<&Engine::stop>)
      .method("stop_all", "", kWithoutGil<&Engine::stop_all>)
      .method("supersede", "", [](const std::shared_ptr<Engine>& e) { OpenEngines::instance().supersede(e); })
      .method<&Engine::check_process>("check_process", "")
      .method("check_next_id", "", [](Engine& e) { without_gil([&] { e.exclusively([&] { e.check_next_id(); }); }); })
      .method("leave", "", [](Engine& e) { without_gil([&] { e.exclusively([&] { e.leave(); }); }); })
      .method("flight_record", "", [](Engine& e) {
        e.check_process();
        const GilReleased released;
        return e.recorder().json();
      });
}

}  // namespace pyc
