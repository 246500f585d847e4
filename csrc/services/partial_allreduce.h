// Allreduce that does not wait for stragglers (eager-SGD, Li et al. 2020, sections 4 and 5): what its application sees.
//
// Two ways to do it: `FlatAllreduce`, by messages, and `BoardAllreduce`, in memory that the ranks of one node share.
//
// Calls and rounds (DESIGN section 4). A call is late if rounds have completed that the application has not been given
// or promised. A call that is not late arrives in the present round and completes with it; a late call waits for
// nothing and is no arrival.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "services/policy.h"
#include "services/round.h"

namespace pyc {

struct PartialAllreduceOptions {
  enum class Late : std::uint8_t { kAccumulate, kReplace, kDrop };
  enum class Missed : std::uint8_t { kLatest, kSum };

  std::string name;
  std::size_t count = 0;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Policy policy;
  Late late = Late::kAccumulate;
  Missed missed = Missed::kLatest;
  std::optional<std::uint64_t> max_staleness;
  std::string activation = "tree";
  std::string algorithm = "recursive_doubling";
  std::size_t history = 8;
  bool track_members = true;
};

class PartialAllreduce {
 public:
  using Options = PartialAllreduceOptions;

  virtual ~PartialAllreduce() = default;

  /// Hands over `count` elements; they may be overwritten on return.
  virtual std::shared_ptr<Call> contribute(const std::byte* data) = 0;
  /// Whether the call is done; if so the result is up to date.
  virtual bool test(Call& call) = 0;
  /// StallError after `timeout` seconds (negative: no limit) names the ranks that are missing.
  virtual const RoundInfo& wait(Call& call, Seconds timeout, const Engine::Interrupt& interrupt) = 0;

  /// Leaves until a flush round completes, which is what the call waits for.
  virtual std::shared_ptr<Call> start_flush() = 0;
  /// Leaves for good. Returns at once.
  virtual void close() = 0;
  /// Throws away what waits to be taken; the number of contributions in it.
  virtual std::size_t discard() = 0;

  /// `count` elements of the element type, never written again while referenced; null before the first.
  virtual std::shared_ptr<const std::byte> result() const = 0;
  virtual bool closed() const = 0;
  virtual RoundNumber rounds() const = 0;
  virtual const Options& options() const = 0;
};

}  // namespace pyc
