// The objects of programs without Python: pyc_open, pyc_make_* and pyc_close of pycollectives.h.
#include <mpi.h>

#define PYC_LINKED
#include <pycollectives.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "c_api/errors.h"
#include "c_api/handles.h"
#include "core/error.h"
#include "engine/environment.h"
#include "memory/memory.h"
#include "transport/mpi_transport.h"

namespace pyc {
namespace {

constexpr Seconds kExitTimeout = 60;  // of an engine that is open at MPI_Finalize

/// A rank's machine and process. Ranks of the same kernel, process namespace and user can share memory.
struct Place {
  std::array<char, 64> kernel{};
  std::array<char, 64> space{};
  std::int32_t number = 0;
  std::uint64_t started = 0;

  static Place here() {
    Place place;
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    std::array<char, 64> space{};
    if (boot.empty() || readlink("/proc/self/ns/pid", space.data(), space.size() - 16) < 0) {  // shares nothing
      boot = "process " + std::to_string(getpid());
      gethostname(space.data(), space.size() - 1);
    }
    boot.copy(place.kernel.data(), place.kernel.size() - 1);
    const std::string name = std::string(space.data()) + ":" + std::to_string(getuid());
    name.copy(place.space.data(), place.space.size() - 1);
    const ProcessId own = ProcessId::own();
    place.number = own.number;
    place.started = own.started;
    return place;
  }
  bool is_near(const Place& other) const { return kernel == other.kernel && space == other.space; }
};

std::vector<Place> places_of(MPI_Comm comm, int size) {
  const Place own = Place::here();
  std::vector<Place> places(static_cast<std::size_t>(size));
  const int bytes = static_cast<int>(sizeof(Place));
  MPI_Allgather(&own, bytes, MPI_BYTE, places.data(), bytes, MPI_BYTE, comm);
  return places;
}

/// All ranks of a machine are a node.
Nodes nodes_of(const std::vector<Place>& places) {
  std::vector<Rank> nodes;
  std::vector<Place> seen;
  for (const Place& place : places) {
    const auto found = std::find_if(seen.begin(), seen.end(), [&](const Place& each) { return each.is_near(place); });
    nodes.push_back(static_cast<Rank>(found - seen.begin()));
    if (found == seen.end()) seen.push_back(place);
  }
  return Nodes(std::move(nodes));
}

void check_mpi() {
  int is_initialized = 0;
  int is_finalized = 0;
  int level = MPI_THREAD_SINGLE;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  if (is_initialized == 0 || is_finalized != 0) throw std::runtime_error("pyc_open: expected MPI to be initialized");
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_MULTIPLE) {
    throw std::runtime_error("pyc_open: expected MPI_THREAD_MULTIPLE: call MPI_Init_thread instead of MPI_Init");
  }
}

Seconds checked_limit(const char* call, double timeout, Seconds otherwise) {
  if (timeout == PYC_DEFAULT_TIMEOUT) return otherwise;
  if (std::isnan(timeout) || timeout < 0) {
    throw std::invalid_argument(std::string(call) + ": timeout: expected seconds >= 0 or INFINITY, got " +
                                std::to_string(timeout));
  }
  return std::isinf(timeout) ? -1 : timeout;
}

Policy policy_from(const char* text, Rank size) {
  const std::string_view name = text == nullptr ? "" : text;
  if (name == "solo") return {.kind = Policy::Kind::kSolo};
  if (name == "full") return {.kind = Policy::Kind::kFull};
  if (name == "majority") return {.kind = Policy::Kind::kAnyOf, .count = 1};
  constexpr std::string_view kQuorum = "quorum:";
  if (name.starts_with(kQuorum)) {
    Rank ranks = 0;
    const char* const end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + kQuorum.size(), end, ranks);
    if (error == std::errc() && rest == end && ranks >= 1 && ranks <= size) {
      return {.kind = Policy::Kind::kQuorum, .count = ranks};
    }
  }
  throw std::invalid_argument("policy: expected solo, majority, full or quorum:K with 1 <= K <= " +
                              std::to_string(size) + ", got '" + std::string(name) + "'");
}

PartialAllreduceOptions::Missed missed_from(const char* text, ReduceOp op) {
  const std::string_view name = text == nullptr ? "" : text;
  if (name == "latest") return PartialAllreduceOptions::Missed::kLatest;
  if (name == "sum" && (op == ReduceOp::kSum || op == ReduceOp::kAvg)) return PartialAllreduceOptions::Missed::kSum;
  throw std::invalid_argument("missed: expected latest, or sum with the operation SUM or AVG, got '" +
                              std::string(name) + "'");
}

void check_elements(std::size_t count, pyc_dtype dtype, pyc_op op) {
  if (count == 0) throw std::invalid_argument("count: expected at least 1 element, got 0");
  if (static_cast<unsigned>(dtype) >= kDataTypes || static_cast<unsigned>(op) >= kReduceOps ||
      !is_defined(static_cast<ReduceOp>(op), static_cast<DataType>(dtype))) {
    throw std::invalid_argument("expected an operation that MPI defines on the elements, got operation " +
                                std::to_string(static_cast<int>(op)) + " on type " +
                                std::to_string(static_cast<int>(dtype)));
  }
}

struct MadeAllreduce {
  MadeAllreduce(const std::shared_ptr<Engine>& engine, std::shared_ptr<PartialAllreduce> of, Seconds limit)
      : collective(std::move(of)),
        contributor(*engine, *collective),
        handle(
            {collective->options().name, collective->options().count, collective->options().type, &in_use, limit, {}},
            collective, contributor) {}

  std::shared_ptr<PartialAllreduce> collective;
  Contributor contributor;
  std::atomic_flag in_use;
  AllreduceHandle handle;
};

}  // namespace
}  // namespace pyc

struct pyc_communicator {
  using Seconds = pyc::Seconds;

  /// Throws the same on all ranks unless all make the same call. `check` returns this rank's options, or throws.
  template <class Check>
  auto agreed(const std::string& call, Check check) {
    std::exception_ptr refused;
    std::optional<decltype(check().second)> options;
    std::string text;
    try {
      engine->exclusively([&] { engine->check_next_id(); });
      auto [described, made] = check();
      text = std::move(described);
      options = std::move(made);
    } catch (const std::exception& error) {
      refused = std::current_exception();
      text = std::string("refused, ") + error.what();
    }
    const pyc::Engine::Texts texts = engine->compare(text, call, default_limit, {});
    if (refused) std::rethrow_exception(refused);
    if (texts) {
      const auto other =
          std::find_if(texts->begin(), texts->end(), [&](const std::string& each) { return each != text; });
      throw pyc::MismatchError(call + ": arguments differ: '" + *other + "' on rank " +
                               std::to_string(other - texts->begin()) + ", here '" + text + "'");
    }
    return std::move(*options);
  }

  std::shared_ptr<pyc::Engine> engine;
  pyc::Nodes nodes;
  Seconds default_limit;
  std::vector<std::unique_ptr<pyc::MadeAllreduce>> allreduces;
  std::shared_ptr<pyc::ExplicitGroups> groups;
  std::vector<std::unique_ptr<pyc::PreduceHandle>> preduces;
  std::atomic_flag in_preduce;
};

namespace pyc {
namespace {

/// Engines that are open. MPI_Finalize must find none that still uses MPI.
class OpenEngines {
 public:
  static OpenEngines& instance() {
    static auto* const engines = new OpenEngines;
    return *engines;
  }

  void add(std::shared_ptr<Engine> engine) {
    const std::lock_guard lock(mutex_);
    if (!hooked_) at_mpi_finalize([this] { close_all(); });
    hooked_ = true;
    engines_.push_back(std::move(engine));
  }
  void remove(const std::shared_ptr<Engine>& engine) {
    const std::lock_guard lock(mutex_);
    std::erase(engines_, engine);
  }

 private:
  void close_all() {
    for (const std::shared_ptr<Engine>& engine : engines_) {
      try {
        engine->abort();
        engine->close(kExitTimeout, {});
      } catch (const std::exception& error) {
        std::fprintf(stderr, "pycollectives: rank %d, at the end: %s\n", engine->rank(), error.what());
      }
    }
  }

  std::mutex mutex_;
  bool hooked_ = false;
  std::vector<std::shared_ptr<Engine>> engines_;
};

std::shared_ptr<Engine> open_engine(MPI_Comm comm, const std::vector<Place>& places) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  const Place& own = places[static_cast<std::size_t>(rank)];
  const auto of_kernel = [&](const Place& place) { return place.kernel == own.kernel; };
  const auto local_ranks = static_cast<Rank>(std::count_if(places.begin(), places.end(), of_kernel));
  auto transport = std::make_unique<MpiTransport>(comm, local_ranks);
  std::string group = std::to_string(transport->group());
  auto trace = trace_from_environment(*transport, next_communicator(), group);
  Engine::Options options{.progress = Progress::kThread,
                          .transport_name = "mpi",
                          .flight_rounds = flight_rounds(),
                          .group = std::move(group),
                          .stall_warning = stall_warning()};
  for (std::size_t r = 0; r < places.size(); ++r) {
    if (static_cast<int>(r) == rank || !places[r].is_near(own)) continue;
    options.neighbours.push_back({static_cast<Rank>(r), {places[r].number, places[r].started}});
  }
  auto engine = std::make_shared<Engine>(std::move(transport), std::move(options), std::move(trace));
  OpenEngines::instance().add(engine);
  return engine;
}

}  // namespace
}  // namespace pyc

pyc_status pyc_open(MPI_Comm comm, double timeout, pyc_communicator** made) {
  return pyc::guarded_call([&] {
    pyc::check_mpi();
    const pyc::Seconds limit = pyc::checked_limit("pyc_open", timeout, -1);
    int size = 0;
    MPI_Comm_size(comm, &size);
    const std::vector<pyc::Place> places = pyc::places_of(comm, size);
    *made = new pyc_communicator{.engine = pyc::open_engine(comm, places),
                                 .nodes = pyc::nodes_of(places),
                                 .default_limit = limit,
                                 .allreduces = {},
                                 .groups = {},
                                 .preduces = {},
                                 .in_preduce = {}};
  });
}

pyc_status pyc_make_allreduce(pyc_communicator* comm, size_t count, pyc_dtype dtype, pyc_op op, const char* policy,
                              const char* missed, pyc_collective** made) {
  return pyc::guarded_call([&] {
    using pyc::PartialAllreduceOptions;
    PartialAllreduceOptions options = comm->agreed("pyc_make_allreduce", [&] {
      pyc::check_elements(count, dtype, op);
      PartialAllreduceOptions wanted;
      wanted.name = "partial_allreduce[" + std::to_string(comm->allreduces.size()) + "]";
      wanted.count = count;
      wanted.type = static_cast<pyc::DataType>(dtype);
      wanted.op = static_cast<pyc::ReduceOp>(op);
      wanted.policy = pyc::policy_from(policy, comm->nodes.size());
      wanted.missed = pyc::missed_from(missed, wanted.op);
      return std::pair(std::to_string(count) + " " + std::string(name_of(wanted.type)) + " " +
                           std::string(name_of(wanted.op)) + " policy=" + policy + " missed=" + missed,
                       std::move(wanted));
    });
    auto collective = pyc::PartialAllreduce::create(comm->engine, pyc::host_memory(), std::move(options), comm->nodes,
                                                    comm->default_limit, {});
    comm->allreduces.push_back(
        std::make_unique<pyc::MadeAllreduce>(comm->engine, std::move(collective), comm->default_limit));
    *made = &comm->allreduces.back()->handle;
  });
}

pyc_status pyc_make_preduce(pyc_communicator* comm, size_t count, pyc_dtype dtype, pyc_op op, pyc_collective** made) {
  return pyc::guarded_call([&] {
    constexpr std::size_t kShortestOnBoard = 1 << 16;  // bytes: below, messages are faster
    pyc::check_elements(count, dtype, op);
    if (!comm->groups) comm->groups = pyc::ExplicitGroups::join(comm->engine, pyc::host_memory(), comm->nodes);
    const auto type = static_cast<pyc::DataType>(dtype);
    const auto sizes = static_cast<std::size_t>(comm->nodes.size()) + 1;
    comm->preduces.push_back(std::make_unique<pyc::PreduceHandle>(
        pyc_collective::Common{"preduce", count, type, &comm->in_preduce, comm->default_limit, {}}, comm->engine,
        comm->groups, static_cast<pyc::ReduceOp>(op), comm->nodes,
        std::vector<std::string>(sizes, "recursive_doubling"), count * pyc::size_of(type) >= kShortestOnBoard));
    *made = comm->preduces.back().get();
  });
}

pyc_status pyc_close(pyc_communicator** comm, double timeout) {
  return pyc::guarded_call([&] {
    if (comm == nullptr || *comm == nullptr) return;
    pyc_communicator& open = **comm;
    const pyc::Seconds limit = pyc::checked_limit("pyc_close", timeout, open.default_limit);
    for (const std::unique_ptr<pyc::MadeAllreduce>& each : open.allreduces) {
      pyc::PartialAllreduce& collective = *each->collective;
      if (collective.closed()) continue;
      collective.wait(*collective.start_flush(limit), limit, {});
      collective.close();
    }
    if (open.groups) open.groups->close();
    open.engine->close(limit, {});
    pyc::OpenEngines::instance().remove(open.engine);
    delete *comm;
    *comm = nullptr;
  });
}
