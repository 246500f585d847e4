#include "memory/cuda/simulated_nccl.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <utility>

#include "memory/cuda/simulated_state.h"

// Names are NCCL's, and handles are numbers.
// NOLINTBEGIN(readability-identifier-naming,performance-no-int-to-ptr,bugprone-macro-parentheses)

namespace pyc::cuda {
namespace {

using State = SimulatedDriver::State;
using Member = std::shared_ptr<SimulatedMember>;

constexpr std::string_view kErrors[] = {
    "no error",
    "unhandled cuda error",
    "unhandled system error",
    "internal error",
    "invalid argument",
    "invalid usage",
    "remote process exited or there was a network error",
    "NCCL operation in progress",
};

/// What every function of communicators begins with.
ncclResult_t enter_nccl(const char* function) {
  simulated_state->work_meanwhile();
  if (const std::optional<int> error = simulated_state->due_error(function)) return *error;
  simulated_state->check_context(function);
  return ncclSuccess;
}
#define PYC_ENTER_NCCL() \
  if (const ncclResult_t due = enter_nccl(__func__); due != ncclSuccess) return due

ncclResult_t nccl_error(ncclResult_t result, const std::string& text) {
  simulated_state->nccl.last_error = text;
  return result;
}

/// Null if it does not exist, which is misuse.
Member member_of(const char* function, ncclComm_t communicator) {
  const auto found = simulated_state->nccl.members.find(communicator);
  if (found != simulated_state->nccl.members.end()) return found->second;
  simulated_state->misused(std::string(function) + " of a communicator that does not exist");
  return nullptr;
}

bool devices_can_be_shared() {
  const char* const enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return simulated_state->nccl.version >= 23000 && enabled != nullptr && std::string_view(enabled) == "1";
}

ncclResult_t ncclGetVersion(int* version) { return *version = simulated_state->nccl.version.value_or(0), ncclSuccess; }

const char* ncclGetErrorString(ncclResult_t result) {
  const bool is_known = result >= 0 && result < std::ssize(kErrors);
  return is_known ? kErrors[result].data() : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) { return simulated_state->nccl.last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const std::optional<int> error = simulated_state->due_error(__func__)) return *error;
  auto& ids = simulated_state->nccl.ids;
  std::erase_if(ids, [](const auto& storage) { return SimulatedCommunicator::all_joined(*storage); });
  const SimulatedStorage::Handle handle = ids.emplace_back(SimulatedCommunicator::new_storage())->handle();
  *id = {};
  static_assert(sizeof handle <= sizeof id->internal);
  std::memcpy(id->internal, &handle, sizeof handle);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int number,
                                    ncclConfig_t* config) {
  PYC_ENTER_NCCL();
  State& s = *simulated_state;
  *communicator = nullptr;
  if (s.sticky != CUDA_SUCCESS) return nccl_error(ncclUnhandledCudaError, "the device has failed");
  if (config == nullptr || config->blocking != 0) s.misused("a communicator that blocks");
  if (size < 1 || size > static_cast<int>(SimulatedCommunicator::kMostMembers) || number < 0 || number >= size) {
    return nccl_error(ncclInvalidArgument, "simulated NCCL: expected 1 to 16 members, and a number below that");
  }
  SimulatedStorage::Handle handle{};
  std::memcpy(&handle, id.internal, sizeof handle);
  std::shared_ptr<SimulatedStorage> storage = SimulatedStorage::open(handle);
  if (storage == nullptr) return nccl_error(ncclSystemError, "simulated NCCL: who made the id has ended");
  const int device = simulated_thread.contexts.empty() ? 0 : simulated_thread.contexts.back();
  auto made = std::make_shared<SimulatedMember>(
      SimulatedMember{.shared = {std::move(storage), static_cast<std::size_t>(size), static_cast<std::size_t>(number)},
                      .device = device,
                      .polls = s.random.below(4),
                      .queue = {}});
  if (!made->shared.join(s.uuid(device))) {
    s.misused("a communicator joined twice, or with another size");
    return ncclInvalidUsage;
  }
  *communicator = reinterpret_cast<ncclComm_t>(s.next_handle++);
  s.nccl.members[*communicator] = std::move(made);
  return ncclInProgress;
}

/// Goes on with what is in progress.
ncclResult_t poll(SimulatedMember& member) {
  if (member.error != ncclSuccess) return member.error;
  if (!member.joined && !member.shared.all_joined()) return ncclInProgress;
  if (member.polls > 0) return --member.polls, ncclInProgress;
  if (!member.joined && member.shared.shares_a_device() && !devices_can_be_shared()) {
    return member.error = nccl_error(ncclInvalidUsage, "Duplicate GPU detected");
  }
  member.joined = true;
  if (member.queue) member.error = std::exchange(member.queue, nullptr)();
  return member.error;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
  PYC_ENTER_NCCL();
  const Member member = member_of(__func__, communicator);
  if (member == nullptr) return ncclInvalidArgument;
  std::optional<int> found = simulated_state->due_error("ncclCommGetAsyncError finds");
  if (!found && member->waits()) found = simulated_state->due_error("ncclCommGetAsyncError finds while it reduces");
  if (found) member->error = *found;
  *error = poll(*member);
  if (*error == ncclSuccess) member->told = member->begun;
  return ncclSuccess;
}

/// Deposits at the head of its stream, and folds when all members have deposited.
ncclResult_t queue_reduction(State& s, const Member& member, SimulatedReduction reduction, std::uint64_t from,
                             std::uint64_t to, CUstream stream) {
  const std::uint64_t n = member->begun++;
  const std::size_t bytes = reduction.count * bytes_of_nccl_type(reduction.type);
  State::Work deposit{.is_ready = [member, n] { return member->aborted || member->done == n; },
                      .run =
                          [&s, member, n, reduction, from, bytes] {
                            if (member->aborted) return CUDA_SUCCESS;
                            const std::byte* const values = s.translate(from, bytes, true);
                            if (values == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
                            member->shared.deposit(n, reduction, values);
                            return CUDA_SUCCESS;
                          },
                      .regions = s.regions_of(from, bytes)};
  State::Work fold{
      .is_ready = [&s, member, n] { return member->aborted || (!s.nccl.is_held && member->shared.all_deposited(n)); },
      .run =
          [&s, member, n, to, bytes] {
            if (member->aborted) return CUDA_SUCCESS;
            std::byte* const into = s.translate(to, bytes, true);
            if (into == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
            if (!member->shared.fold(n, into)) s.misused("members that call for different reductions");
            ++member->done;
            return CUDA_SUCCESS;
          },
      .regions = s.regions_of(to, bytes)};
  if (s.queue(stream, std::move(deposit)) != CUDA_SUCCESS) return ncclUnhandledCudaError;
  return s.queue(stream, std::move(fold)) == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t communicator, CUstream stream) {
  PYC_ENTER_NCCL();
  State& s = *simulated_state;
  const Member member = member_of(__func__, communicator);
  if (member == nullptr) return ncclInvalidArgument;
  if (s.sticky != CUDA_SUCCESS) return nccl_error(ncclUnhandledCudaError, "the device has failed");
  if (!member->is_settled()) s.misused("ncclAllReduce of a communicator that is not settled");
  if (!simulated_thread.contexts.empty() && simulated_thread.contexts.back() != member->device) {
    s.misused("ncclAllReduce on another device than the communicator's");
  }
  const std::size_t bytes = bytes_of_nccl_type(type);
  if (bytes == 0 || op < ncclSum || op > ncclMin)
    return nccl_error(ncclInvalidArgument, "an unknown type or operation");
  if (count > SimulatedCommunicator::kCapacity / bytes) {
    return nccl_error(ncclInvalidUsage, "simulated NCCL: expected at most 1 MiB");
  }
  if (count == 0) return ncclSuccess;
  const auto queue = [&s, weak = std::weak_ptr(member), reduction = SimulatedReduction{count, type, op},
                      source = reinterpret_cast<std::uint64_t>(from), target = reinterpret_cast<std::uint64_t>(to),
                      stream] { return queue_reduction(s, weak.lock(), reduction, source, target, stream); };
  if (s.random.below(2) == 0) return queue();
  member->polls = 1 + s.random.below(3);
  member->queue = queue;
  return ncclInProgress;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  PYC_ENTER_NCCL();
  const Member member = member_of(__func__, communicator);
  if (member == nullptr) return ncclInvalidArgument;
  if (simulated_state->nccl.is_strict && member->shared.others_reduce()) {
    simulated_state->misused("a communicator ended while another member reduces: it may read from this one's memory");
  }
  member->aborted = true;
  simulated_state->nccl.members.erase(communicator);
  return ncclSuccess;
}

#undef PYC_ENTER_NCCL

/// A function of NCCL, which may be called from any thread.
template <auto kFunction>
struct LockedNccl;
template <class Result, class... Arguments, Result (*kFunction)(Arguments...)>
struct LockedNccl<kFunction> {
  static Result call(Arguments... arguments) {
    const std::lock_guard lock(simulated_mutex);
    if (simulated_state != nullptr) return kFunction(arguments...);
    if constexpr (std::is_same_v<Result, ncclResult_t>) return ncclUnhandledCudaError;
    if constexpr (std::is_same_v<Result, const char*>) return "the simulated driver has ended";
  }
};

constexpr NcclApi kSimulatedNccl = {
#define PYC_ENTRY(name, result, parameters) .name = &LockedNccl<&name>::call,
    PYC_NCCL_FUNCTIONS(PYC_ENTRY) PYC_OPTIONAL_NCCL_FUNCTIONS(PYC_ENTRY)
#undef PYC_ENTRY
};

}  // namespace

NcclFinding simulated_nccl() {
  const std::lock_guard lock(simulated_mutex);
  const bool has_one = simulated_state != nullptr && simulated_state->nccl.version.has_value();
  return has_one ? new_enough(kSimulatedNccl) : NcclFinding{nullptr, "the simulated driver has no NCCL"};
}

}  // namespace pyc::cuda

// NOLINTEND(readability-identifier-naming,performance-no-int-to-ptr,bugprone-macro-parentheses)
