// Tests only: what the members of a simulated communicator have in common: memory in which each deposits its values,
// and from which each folds the same result. There are two slots for a member: it deposits the next values when it has
// the result, and so all have the result before that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "memory/cuda/nccl_api.h"
#include "memory/cuda/simulated_storage.h"

namespace pyc::cuda {

/// What members of one call must agree on.
struct SimulatedReduction {
  std::uint64_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  bool operator==(const SimulatedReduction&) const = default;
};

/// 0 if there is no such type.
std::size_t bytes_of_nccl_type(ncclDataType_t type);

class SimulatedCommunicator {
 public:
  static constexpr std::size_t kMostMembers = 16;
  static constexpr std::size_t kCapacity = std::size_t{1} << 20U;  ///< bytes of a reduction

  /// Of a communicator to be.
  static std::shared_ptr<SimulatedStorage> new_storage();
  static bool all_joined(const SimulatedStorage& storage);

  SimulatedCommunicator(std::shared_ptr<SimulatedStorage> storage, std::size_t size, std::size_t number);

  /// Whether nobody has this number, and those who joined before expect as many members.
  bool join(const CUuuid& device);
  bool all_joined() const { return all_joined(*storage_); }
  /// Of any two members.
  bool shares_a_device() const;

  /// The values of the n-th reduction, counted from 0.
  void deposit(std::uint64_t n, const SimulatedReduction& reduction, const std::byte* values);
  bool all_deposited(std::uint64_t n) const;
  /// Folds in the order of members. Whether all called for the same.
  bool fold(std::uint64_t n, std::byte* into) const;
  /// Whether another member has begun a reduction whose result it has not yet.
  bool others_reduce() const;

 private:
  struct Head;

  Head& head() const;
  std::byte* slot(std::uint64_t n, std::size_t member) const;

  std::shared_ptr<SimulatedStorage> storage_;
  std::size_t size_;
  std::size_t number_;
};

}  // namespace pyc::cuda
