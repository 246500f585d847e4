// The functions of pycollectives.h: checks of arguments, then the calls of the services.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "c_api/errors.h"
#include "c_api/handles.h"
#include "core/error.h"
#include "core/hot.h"
#include "core/one_thread.h"
#include "services/parameter_server/ledger_copy.h"

namespace pyc {
namespace {

static_assert(static_cast<int>(PYC_BOOL) + 1 == kDataTypes && static_cast<int>(PYC_FLOAT64) == int(DataType::kFloat64));

const char* name_of(pyc_collective::Kind kind) {
  switch (kind) {
    case pyc_collective::Kind::kAllreduce:
      return "partial allreduce";
    case pyc_collective::Kind::kPreduce:
      return "handle for preduce";
    case pyc_collective::Kind::kReduce:
      return "partial reduce";
    case pyc_collective::Kind::kNeighborhood:
      return "averaging with neighbors";
    case pyc_collective::Kind::kPairwise:
      return "pairwise averaging";
    default:
      return "parameter server";
  }
}

[[noreturn]] void refuse(const std::string& call, const std::string& expected, const std::string& got) {
  throw std::invalid_argument(call + ": expected " + expected + ", got " + got);
}

[[noreturn]] void refuse_kind(const char* call, const std::string& expected, const pyc_collective* handle) {
  if (handle == nullptr) refuse(call, expected, "NULL");
  refuse("'" + handle->common.name + "': " + call, expected, std::string("a ") + name_of(handle->kind));
}

template <class Handle>
PYC_HOT Handle& checked(const char* call, pyc_collective* handle) {
  if (handle == nullptr || handle->kind != Handle::kKind) {
    refuse_kind(call, std::string("a ") + name_of(Handle::kKind), handle);
  }
  return static_cast<Handle&>(*handle);
}

[[noreturn]] void refuse_array(const char* call, const pyc_collective& handle, const void* data, std::size_t count,
                               pyc_dtype dtype) {
  const auto shown = [](std::size_t elements, DataType type) {
    return std::to_string(elements) + " " + std::string(pyc::name_of(type));
  };
  const bool is_known = dtype >= 0 && static_cast<int>(dtype) < kDataTypes;
  refuse("'" + handle.common.name + "': " + call, shown(handle.common.count, handle.common.type),
         data == nullptr ? "NULL"
         : is_known      ? shown(count, static_cast<DataType>(dtype))
                         : "element type " + std::to_string(static_cast<int>(dtype)));
}

PYC_HOT void check_array(const char* call, const pyc_collective& handle, const void* data, std::size_t count,
                         pyc_dtype dtype) {
  const bool fits = count == handle.common.count && static_cast<int>(dtype) == static_cast<int>(handle.common.type);
  if (!fits || (data == nullptr && count > 0)) refuse_array(call, handle, data, count, dtype);
}

Seconds limit_of(const pyc_collective& handle, double timeout) {
  if (timeout == PYC_DEFAULT_TIMEOUT) return handle.common.default_limit;
  if (std::isnan(timeout) || timeout < 0) {
    refuse("'" + handle.common.name + "': timeout", "seconds >= 0, INFINITY, or -1 for the default",
           std::to_string(timeout));
  }
  return std::isinf(timeout) ? -1 : timeout;
}

void check_out(const char* call, const char* name, const void* out) {
  if (out == nullptr) refuse(call, std::string("a place for the ") + name, "NULL");
}

void describe(const RoundInfo& info, pyc_round* round) {
  if (round == nullptr) return;
  *round = {.round = info.round,
            .initiator = info.initiator,
            .included = info.included ? 1 : 0,
            .contributors = info.contributor_count,
            .active = info.active,
            .staleness = info.staleness,
            .missed = info.missed,
            .overrun = info.overrun ? 1 : 0};
}

// ------------------------------------------------------------------------------------------------ partial allreduce

PYC_HOT pyc_status contribute(pyc_collective* handle, const void* data, std::size_t count, pyc_dtype dtype,
                              pyc_request** request) {
  return guarded_call([&] {
    auto& of = checked<AllreduceHandle>("contribute", handle);
    check_array("contribute", of, data, count, dtype);
    check_out("contribute", "request", request);
    const OneThread one(*of.common.in_use, of.common.name);
    if (!of.spare) of.spare = std::make_unique<pyc_request>(pyc_request{nullptr, &of});
    of.contributor.note_contribution();
    of.spare->call = of.collective->contribute(static_cast<const std::byte*>(data), of.common.default_limit);
    *request = of.spare.release();
  });
}

void free_request(pyc_request** request) {
  if (request == nullptr) return;
  delete *request;
  *request = nullptr;
}

/// Frees the request of a call that is done, in a call of its collective.
PYC_HOT void end(AllreduceHandle& of, pyc_request** request) {
  (*request)->call.reset();
  of.spare.reset(std::exchange(*request, nullptr));
}

PYC_HOT pyc_status test(pyc_request** request, int* done, pyc_round* round) {
  return guarded_call([&] {
    check_out("test", "request", request);
    check_out("test", "answer", done);
    *done = *request == nullptr ? 1 : 0;
    if (*request == nullptr) return;
    AllreduceHandle& of = *(*request)->of;
    const OneThread one(*of.common.in_use, of.common.name);
    Call& call = *(*request)->call;
    if (!of.collective->test(call)) return;
    *done = 1;
    describe(call.info, round);
    end(of, request);
  });
}

PYC_HOT pyc_status wait(pyc_request** request, double timeout, pyc_round* round) {
  return guarded_call([&] {
    check_out("wait", "request", request);
    if (*request == nullptr) return;
    AllreduceHandle& of = *(*request)->of;
    const Seconds limit = limit_of(of, timeout);
    const OneThread one(*of.common.in_use, of.common.name);
    Call& call = *(*request)->call;
    if (!call.given) of.collective->wait(call, limit, of.common.interrupt);
    describe(call.info, round);
    end(of, request);
  });
}

PYC_HOT pyc_status result(pyc_collective* handle, void* out, std::size_t count, pyc_dtype dtype) {
  return guarded_call([&] {
    auto& of = checked<AllreduceHandle>("result", handle);
    check_array("result", of, out, count, dtype);
    const OneThread one(*of.common.in_use, of.common.name);
    if (of.collective->read_result(static_cast<std::byte*>(out))) return;
    throw std::runtime_error("'" + of.common.name + "' has no result yet; contribute and wait first");
  });
}

pyc_status flush(pyc_collective* handle, double timeout, pyc_round* round) {
  return guarded_call([&] {
    auto& of = checked<AllreduceHandle>("flush", handle);
    const Seconds limit = limit_of(of, timeout);
    const OneThread one(*of.common.in_use, of.common.name);
    const std::shared_ptr<Call> call = of.collective->start_flush(limit);
    describe(of.collective->wait(*call, limit, of.common.interrupt), round);
    of.contributor.note_flush();
  });
}

// ------------------------------------------------------------------------------------------------ averages

std::vector<Rank> checked_group(const PreduceHandle& of, const std::int32_t* group, std::size_t members) {
  const std::string call = "'" + of.common.name + "': group";
  const Rank size = of.nodes.size();
  if (group == nullptr) refuse(call, "ranks", "NULL");
  std::vector<Rank> ranks(group, group + members);
  std::sort(ranks.begin(), ranks.end());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= size) refuse(call, "ranks below " + std::to_string(size), std::to_string(ranks[i]));
    if (i > 0 && ranks[i] == ranks[i - 1]) refuse(call, "each rank once", std::to_string(ranks[i]) + " again");
  }
  const Rank own = of.engine->rank();
  if (!std::binary_search(ranks.begin(), ranks.end(), own)) {
    refuse(call, "this rank, " + std::to_string(own) + ", in it", list_ranks(ranks));
  }
  return ranks;
}

/// "board", or the schedule of messages; the same on all members.
const std::string& algorithm_of(const PreduceHandle& of, const std::vector<Rank>& members) {
  static const std::string board = "board";
  const auto is_here = [&](Rank rank) { return of.nodes.of(rank) == of.nodes.of(members.front()); };
  if (of.on_board && std::all_of(members.begin(), members.end(), is_here)) return board;
  return of.algorithms.at(members.size());
}

pyc_status preduce(pyc_collective* handle, void* data, std::size_t count, pyc_dtype dtype, const std::int32_t* group,
                   std::size_t members, double timeout) {
  return guarded_call([&] {
    auto& of = checked<PreduceHandle>("preduce", handle);
    const OneThread one(*of.common.in_use, of.common.name);
    const std::vector<Rank> ranks = checked_group(of, group, members);
    Seconds limit = -1;
    try {
      if (ranks.size() == static_cast<std::size_t>(of.nodes.size())) Contributor::check_flushed(*of.engine, "preduce");
      limit = limit_of(of, timeout);
      check_array("preduce", of, data, count, dtype);
    } catch (const std::exception& error) {
      if (ranks.size() > 1) of.groups->refuse_call(ranks, error.what());  // the other members do not wait
      throw;
    }
    if (ranks.size() == 1) return;
    const GroupData values{static_cast<std::byte*>(data), count, of.common.type, of.op};
    of.groups->reduce({ranks, values, algorithm_of(of, ranks), false, 0}, limit, of.common.interrupt);
  });
}

void average_with_group(ReduceHandle& of, std::byte* data, Seconds limit) {
  of.collective->average(data, of.next_step, {}, limit, of.common.interrupt);
  ++of.next_step;
}

/// After a StallError, the step continues with the values of the first call.
void average_with_neighbors(NeighborhoodHandle& of, std::byte* data, Seconds limit) {
  if (of.begun_with == nullptr) {
    of.collective->start(data);
    of.begun_with = data;
  } else if (of.begun_with != data) {
    throw std::runtime_error("'" + of.common.name +
                             "': average: a step has begun with other memory, and is not done: "
                             "pass that memory");
  }
  of.collective->wait(data, limit, of.common.interrupt);
  of.begun_with = nullptr;
}

pyc_status average(pyc_collective* handle, void* data, std::size_t count, pyc_dtype dtype, double timeout) {
  return guarded_call([&] {
    using Kind = pyc_collective::Kind;
    if (handle == nullptr || (handle->kind != Kind::kReduce && handle->kind != Kind::kNeighborhood)) {
      refuse_kind("average", "a partial reduce or averaging with neighbors", handle);
    }
    check_array("average", *handle, data, count, dtype);
    const Seconds limit = limit_of(*handle, timeout);
    const OneThread one(*handle->common.in_use, handle->common.name);
    auto* const values = static_cast<std::byte*>(data);
    if (handle->kind == Kind::kReduce) return average_with_group(static_cast<ReduceHandle&>(*handle), values, limit);
    average_with_neighbors(static_cast<NeighborhoodHandle&>(*handle), values, limit);
  });
}

pyc_status read_model(pyc_collective* handle, void* out, std::size_t count, pyc_dtype dtype) {
  return guarded_call([&] {
    auto& of = checked<PairwiseHandle>("read", handle);
    check_array("read", of, out, count, dtype);
    of.collective->read(static_cast<std::byte*>(out), of.common.interrupt);
  });
}

pyc_status apply_delta(pyc_collective* handle, const void* delta, std::size_t count, pyc_dtype dtype) {
  return guarded_call([&] {
    auto& of = checked<PairwiseHandle>("apply", handle);
    check_array("apply", of, delta, count, dtype);
    of.collective->apply(static_cast<const std::byte*>(delta), of.common.interrupt);
  });
}

// ------------------------------------------------------------------------------------------------ parameter server

pyc_status push(pyc_collective* handle, const void* gradient, std::size_t count, pyc_dtype dtype, double timeout) {
  return guarded_call([&] {
    using Push = server::ParameterServer::Kind;
    auto& of = checked<ServerHandle>("push", handle);
    check_array("push", of, gradient, count, dtype);
    const Seconds limit = limit_of(of, timeout);
    const OneThread one(*of.common.in_use, of.common.name);
    const std::byte* const values =
        server::accepted(of.not_finite, of.common.type, static_cast<const std::byte*>(gradient), count, of.common.name);
    of.collective->push(values == nullptr ? Push::kSkipped : Push::kGradient, values, {limit, of.common.interrupt});
    of.suspended = false;
  });
}

/// No update waits for some ranks. They must ask for the version that includes all pushes so far.
server::Version newest_version(ServerHandle& of, Seconds limit) {
  server::ParameterServer& collective = *of.collective;
  if ((of.is_worker && !of.suspended) || collective.options().direct) return 0;
  return server::LedgerCopy(collective.options(), collective.counts({limit, of.common.interrupt}))->version();
}

pyc_status pull(pyc_collective* handle, void* out, std::size_t count, pyc_dtype dtype, double timeout) {
  return guarded_call([&] {
    auto& of = checked<ServerHandle>("pull", handle);
    check_array("pull", of, out, count, dtype);
    const Seconds limit = limit_of(of, timeout);
    const OneThread one(*of.common.in_use, of.common.name);
    of.collective->pull(static_cast<std::byte*>(out), {limit, of.common.interrupt}, newest_version(of, limit));
  });
}

}  // namespace
}  // namespace pyc

const pyc_api pyc_linked_api = {
    .version = PYC_API_VERSION,
    .contribute = pyc::contribute,
    .test = pyc::test,
    .wait = pyc::wait,
    .request_free = pyc::free_request,
    .result = pyc::result,
    .flush = pyc::flush,
    .preduce = pyc::preduce,
    .average = pyc::average,
    .read = pyc::read_model,
    .apply = pyc::apply_delta,
    .push = pyc::push,
    .pull = pyc::pull,
    .error_text = pyc::last_error_text,
    .failed_ranks = pyc::last_failed_ranks,
};
