#include "memory/cuda/nccl_communicator.h"

#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "memory/cuda/cuda_executor.h"
#include "memory/cuda/kernel_names.h"

namespace pyc::cuda {
namespace {

constexpr int kFirstWithSharedDevices = 23000;

void check_nccl(const NcclApi& nccl, ncclResult_t result, const char* call) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw DeviceError(std::string("NCCL: ") + call + ": " + text_of(nccl, result));
}

std::optional<ncclDataType_t> nccl_type(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return ncclFloat16;
    case DataType::kBfloat16:
      return ncclBfloat16;
    case DataType::kFloat32:
      return ncclFloat32;
    case DataType::kFloat64:
      return ncclFloat64;
    case DataType::kInt8:
      return ncclInt8;
    case DataType::kInt32:
      return ncclInt32;
    case DataType::kInt64:
      return ncclInt64;
    case DataType::kUint8:
      return ncclUint8;
    case DataType::kUint32:
      return ncclUint32;
    case DataType::kUint64:
      return ncclUint64;
    default:
      return std::nullopt;
  }
}

std::optional<ncclRedOp_t> nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return ncclSum;
    case ReduceOp::kProd:
      return ncclProd;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    default:
      return std::nullopt;
  }
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const NcclApi& nccl, const Context& context, const CommunicatorId& id, std::size_t size,
                   std::size_t number)
      : nccl_(nccl), context_(context) {
    ncclUniqueId unique;
    static_assert(sizeof unique == sizeof id);
    std::memcpy(&unique, id.data(), sizeof unique);
    ncclConfig_t config;
    const Context::Current current(context_);
    const ncclResult_t result =
        nccl_.ncclCommInitRankConfig(&communicator_, static_cast<int>(size), unique, static_cast<int>(number), &config);
    try {
      check_nccl(nccl_, result, last_call_);
    } catch (const DeviceError&) {
      if (communicator_ != nullptr) nccl_.ncclCommAbort(communicator_);
      throw;
    }
  }
  ~NcclCommunicator() override {
    context_.end([&] { nccl_.ncclCommAbort(communicator_); });
  }

  bool is_settled() override {
    const Context::Current current(context_);
    ncclResult_t state = ncclSuccess;
    check_nccl(nccl_, nccl_.ncclCommGetAsyncError(communicator_, &state), "ncclCommGetAsyncError");
    check_nccl(nccl_, state, last_call_);
    return state == ncclSuccess;
  }

  void allreduce(Stream& stream, std::byte* data, std::size_t count, DataType type, ReduceOp op) override {
    const KernelElements parts = kernel_elements(type);
    const bool in_parts = parts.per_element == 1 || op == ReduceOp::kSum || op == ReduceOp::kAvg;
    const std::optional<ncclDataType_t> known_type = nccl_type(parts.type);
    const std::optional<ncclRedOp_t> known_op = nccl_op(op);
    if (!known_type || !known_op || !in_parts) {
      throw std::invalid_argument(
          "NCCL: expected SUM, PROD, MIN, MAX or AVG of numbers that are not 16-bit integers, "
          "got " +
          std::string(name_of(op)) + " of " + std::string(name_of(type)));
    }
    const Context::Current current(context_);
    last_call_ = "ncclAllReduce";
    check_nccl(nccl_,
               nccl_.ncclAllReduce(data, data, count * parts.per_element, *known_type, *known_op, communicator_,
                                   handle_of(stream)),
               last_call_);
  }

 private:
  const NcclApi& nccl_;
  const Context& context_;
  ncclComm_t communicator_ = nullptr;
  const char* last_call_ = "ncclCommInitRankConfig";  // whose errors polls find
};

class NcclLibrary final : public CommunicatorLibrary {
 public:
  NcclLibrary(const NcclApi& nccl, const Context& context) : nccl_(nccl), context_(context) {}

  std::string version() const override { return text_of_nccl_version(version_of(nccl_)); }
  std::string why_not_shared() const override {
    const char* const enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    const bool is_enabled = enabled != nullptr && std::string_view(enabled) == "1";
    if (is_enabled && version_of(nccl_) >= kFirstWithSharedDevices) return {};
    return "NCCL takes several ranks on a device from 2.30 on where NCCL_MULTI_RANK_GPU_ENABLE=1 is set; this is " +
           version();
  }
  CommunicatorId new_id() override {
    const Context::Current current(context_);
    ncclUniqueId unique;
    check_nccl(nccl_, nccl_.ncclGetUniqueId(&unique), "ncclGetUniqueId");
    CommunicatorId id;
    std::memcpy(id.data(), &unique, sizeof unique);
    return id;
  }
  std::unique_ptr<Communicator> join(const CommunicatorId& id, std::size_t size, std::size_t number) override {
    return std::make_unique<NcclCommunicator>(nccl_, context_, id, size, number);
  }

 private:
  const NcclApi& nccl_;
  const Context& context_;
};

}  // namespace

std::unique_ptr<CommunicatorLibrary> make_communicator_library(const NcclApi& nccl, const Context& context) {
  return std::make_unique<NcclLibrary>(nccl, context);
}

}  // namespace pyc::cuda
