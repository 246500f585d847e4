// Gradients and weights on their way between two ranks.
//
// The sender offers; the receiver posts a receive when it has room, and accepts; upon that the sender sends. So every
// receive is matched, and nothing is ever cancelled. A receiver posts in the order in which it accepts, and a sender
// sends in the order in which it has been accepted: one tag serves both kinds. Of each kind at most one is on its way
// between two ranks in one direction. Under the engine's progress lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/run.h"
#include "memory/memory.h"
#include "schedule/schedule.h"
#include "services/parameter_server/layout.h"
#include "services/parameter_server/messages.h"

namespace pyc::server {

class Transfers {
 public:
  enum class Kind : std::uint64_t { kGradient, kWeights };

  Transfers(Engine& engine, Memory& memory, const Layout& layout) : engine_(engine), memory_(memory), layout_(layout) {}
  /// Before anything else, with the tags of `collective`.
  void open(std::uint32_t collective) { collective_ = collective; }

  /// `number`: of the push, or of the version. `data` stays until `sent` is told.
  void offer(Rank to, Kind kind, std::uint64_t number, std::byte* data);
  void accepted(Rank by, Kind kind);

  /// What `from` has offered last is to come to `into`; not while `is_receiving`.
  void accept(Rank from, Kind kind, std::uint64_t number, std::byte* into);

  /// Whether one is on its way, or has come and was not told. Its sender may offer the next by then.
  bool is_receiving(Rank from, Kind kind) const {
    const auto found = receiving_.find({from, kind});
    return found != receiving_.end() && found->second.is_moving;
  }

  /// A rank, which kind, and its number.
  using Done = std::function<void(Rank, Kind, std::uint64_t)>;
  /// Tells what is done. Whether anything is.
  bool advance(const Done& sent, const Done& received);
  /// Nothing is offered or on its way.
  bool idle() const { return open_ == 0; }

 private:
  struct Plan {
    Schedule schedule;
    Slice values;
    OpId release;
  };
  /// One direction of one kind with one rank.
  struct Way {
    std::vector<Rank> peers;  // by rank of the plan
    std::unique_ptr<Plan> plan;
    std::unique_ptr<Run> run;
    std::byte* data = nullptr;
    std::uint64_t number = 0;
    bool is_moving = false;
  };
  using Ways = std::map<std::pair<Rank, Kind>, Way>;

  Way& way(Ways& ways, Rank peer, Kind kind, bool sends);
  std::size_t bytes_of(Rank giver, Rank taker, Kind kind) const;
  void start(Way& way, bool present);
  bool finish(Ways& ways, const Done& done);

  Engine& engine_;
  Memory& memory_;
  const Layout& layout_;
  std::uint32_t collective_ = 0;
  Ways sending_, receiving_;
  std::size_t open_ = 0;
};

}  // namespace pyc::server
