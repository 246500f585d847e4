// Builds a plan from straight-line code. The author writes sends, receives, reduces and copies in program order. The
// edges that keep data right (read after write, write after read, write after write) are inferred from the slices of
// each op. Only control edges (triggers, joins, gates) are explicit.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "schedule/schedule.h"

namespace pyc {

struct Need {
  enum class Kind { kAll, kOne, kSome } kind = Kind::kAll;
  std::uint32_t count = 0;

  static Need all() { return {Kind::kAll, 0}; }
  static Need one() { return {Kind::kOne, 1}; }
  static Need some(std::uint32_t k) { return {Kind::kSome, k}; }
};

class ScheduleBuilder {
 public:
  ScheduleBuilder(Rank rank, Rank size);

  Rank rank() const { return rank_; }
  Rank size() const { return size_; }

  Slice buffer(std::size_t count, std::string name = {});

  OpId send(Slice from, Rank to);
  OpId recv(Slice into, Rank from);
  OpId reduce(Slice from, Slice into);
  /// Copying a slice to itself adds no op, so an algorithm written for two operands also works in place.
  void copy(Slice from, Slice into);

  OpId trigger(std::string name);
  OpId join(std::string name, std::span<const OpId> predecessors, Need need = Need::all());
  OpId signal(std::string name, std::span<const OpId> predecessors);
  /// The ops that last wrote any part of `slice`, for which a reader waits.
  std::vector<OpId> writers(Slice slice) const;
  std::vector<OpId> receives_after(OpId op) const;

  /// Every data op added from here on also waits for `op`. Control ops are never gated.
  void gate(OpId op);
  void ungate() { gate_.reset(); }

  Schedule build() &&;

 private:
  struct PastAccess {
    OpId op;
    std::size_t first;
    std::size_t end;
    bool writes;
  };

  OpId add(Action action, std::string name);
  OpId add_control(Action action, std::string name, std::span<const OpId> predecessors, Need need);
  void depend(OpId op, OpId on);
  void order_after_conflicts(OpId op, const Access& access);

  Rank rank_;
  Rank size_;
  std::vector<Schedule::Buffer> buffers_;
  std::vector<Op> ops_;
  std::vector<std::vector<PastAccess>> past_;  // per buffer, without accesses that a later write covers
  std::vector<OpId> last_dependent_;           // per op: the newest op that waits for it, to link each pair once
  std::unordered_map<Rank, std::uint32_t> sent_to_;
  std::unordered_map<Rank, std::uint32_t> received_from_;
  std::optional<OpId> gate_;
  std::vector<bool> behind_gate_;  // per op: waits, directly or indirectly, for the current gate
};

}  // namespace pyc
