#include "memory/cuda/simulated_communicator.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "core/types.h"
#include "memory/cuda/host_kernels.h"
#include "memory/cuda/kernel_names.h"

namespace pyc::cuda {
namespace {

constexpr std::size_t kSlots = 4096;  // begin, after the head

constexpr DataType kTypes[] = {DataType::kInt8,    DataType::kUint8,   DataType::kInt32,   DataType::kUint32,
                               DataType::kInt64,   DataType::kUint64,  DataType::kFloat16, DataType::kFloat32,
                               DataType::kFloat64, DataType::kBfloat16};  // in NCCL's order
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMin};

}  // namespace

struct SimulatedCommunicator::Head {
  std::atomic<std::uint32_t> size;     // 0: nobody has joined
  std::atomic<std::uint32_t> members;  // a bit for each who has joined
  std::array<CUuuid, kMostMembers> devices;
  std::array<std::atomic<std::uint64_t>, kMostMembers> deposited;  // reductions
  std::array<std::atomic<std::uint64_t>, kMostMembers> folded;     // ... of which it has the result
  std::array<std::array<SimulatedReduction, kMostMembers>, 2> reductions;
};

std::size_t bytes_of_nccl_type(ncclDataType_t type) {
  return type >= 0 && type < std::ssize(kTypes) ? size_of(kTypes[type]) : 0;
}

std::shared_ptr<SimulatedStorage> SimulatedCommunicator::new_storage() {
  static_assert(sizeof(Head) <= kSlots);
  return SimulatedStorage::create(kSlots + 2 * kMostMembers * kCapacity);
}

bool SimulatedCommunicator::all_joined(const SimulatedStorage& storage) {
  const Head& head = *reinterpret_cast<const Head*>(storage.data());
  const std::uint32_t size = head.size.load();
  return size != 0 && std::popcount(head.members.load()) == static_cast<int>(size);
}

SimulatedCommunicator::SimulatedCommunicator(std::shared_ptr<SimulatedStorage> storage, std::size_t size,
                                             std::size_t number)
    : storage_(std::move(storage)), size_(size), number_(number) {}

bool SimulatedCommunicator::join(const CUuuid& device) {
  std::uint32_t expected = 0;
  const auto size = static_cast<std::uint32_t>(size_);
  if (!head().size.compare_exchange_strong(expected, size) && expected != size) return false;
  const std::uint32_t bit = std::uint32_t{1} << number_;
  if ((head().members.load() & bit) != 0) return false;
  head().devices[number_] = device;
  return (head().members.fetch_or(bit) & bit) == 0;
}

bool SimulatedCommunicator::shares_a_device() const {
  const auto same = [&](std::size_t a, std::size_t b) {
    return std::memcmp(head().devices[a].bytes, head().devices[b].bytes, sizeof(CUuuid)) == 0;
  };
  for (std::size_t a = 0; a < size_; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (same(a, b)) return true;
    }
  }
  return false;
}

void SimulatedCommunicator::deposit(std::uint64_t n, const SimulatedReduction& reduction, const std::byte* values) {
  std::memcpy(slot(n, number_), values, reduction.count * bytes_of_nccl_type(reduction.type));
  head().reductions[n % 2][number_] = reduction;
  head().deposited[number_].store(n + 1);
}

bool SimulatedCommunicator::all_deposited(std::uint64_t n) const {
  const auto& all = head().deposited;
  return std::all_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size_),
                     [&](const auto& deposited) { return deposited.load() > n; });
}

bool SimulatedCommunicator::fold(std::uint64_t n, std::byte* into) const {
  const auto& reductions = head().reductions[n % 2];
  const SimulatedReduction& reduction = reductions[number_];
  const auto end = reductions.begin() + static_cast<std::ptrdiff_t>(size_);
  if (std::count(reductions.begin(), end, reduction) != static_cast<std::ptrdiff_t>(size_)) return false;
  KernelArguments arguments{};
  for (std::size_t member = 0; member < size_; ++member) arguments.in[member] = slot(n, member);
  arguments.out[0] = into;
  arguments.count = reduction.count;
  arguments.divisor = 1;
  arguments.inputs = static_cast<std::uint32_t>(size_);
  arguments.outputs = 1;
  host_kernel(fold_kernel(kOps[reduction.op], kTypes[reduction.type], false)).kernel(arguments, 0, 1);
  head().folded[number_].store(n + 1);
  return true;
}

bool SimulatedCommunicator::others_reduce() const {
  for (std::size_t member = 0; member < size_; ++member) {
    if (member != number_ && head().deposited[member].load() > head().folded[member].load()) return true;
  }
  return false;
}

SimulatedCommunicator::Head& SimulatedCommunicator::head() const { return *reinterpret_cast<Head*>(storage_->data()); }

std::byte* SimulatedCommunicator::slot(std::uint64_t n, std::size_t member) const {
  return storage_->data() + kSlots + (n % 2 * kMostMembers + member) * kCapacity;
}

}  // namespace pyc::cuda
