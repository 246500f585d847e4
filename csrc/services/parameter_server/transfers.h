// Sends gradients and weights between ranks. The sender offers data. When the receiver has room, it posts a receive and
// accepts, and then the sender sends. Thus every receive is matched, and none is canceled.
//
// Between two ranks, at most one transfer of each kind is under way in each direction. Receives are posted in the order
// of acceptance and sends start in the same order, so one tag serves both kinds. Under the engine's progress lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "engine/engine.h"
#include "engine/transfer.h"
#include "services/parameter_server/layout.h"
#include "services/parameter_server/messages.h"

namespace pyc::server {

class Transfers {
 public:
  enum class Kind : std::uint64_t { kGradient, kWeights };

  Transfers(Engine& engine, const Layout& layout) : engine_(engine), layout_(layout) {}
  /// Call it first. Uses the tags of `collective`.
  void open(std::uint32_t collective) { collective_ = collective; }

  /// `number`: of the push or the version. `data` must stay valid until `sent` is called.
  void offer(Rank to, Kind kind, std::uint64_t number, std::byte* data);
  void accepted(Rank by, Kind kind);

  /// Receives the newest offer of `from` in `into`. Not while `is_receiving`.
  void accept(Rank from, Kind kind, std::uint64_t number, std::byte* into);

  /// Whether a transfer is under way, or has arrived and `received` has not been called. Its sender may offer the next
  /// one already.
  bool is_receiving(Rank from, Kind kind) const {
    const auto found = receiving_.find({from, kind});
    return found != receiving_.end() && found->second.is_moving;
  }

  /// With the other rank, the kind, and the number.
  using Done = std::function<void(Rank, Kind, std::uint64_t)>;
  /// Calls `sent` and `received` for finished transfers. Returns whether there were any.
  bool advance(const Done& sent, const Done& received);
  bool idle() const { return open_ == 0; }

 private:
  /// One direction and kind of transfer with one rank.
  struct Way {
    std::unique_ptr<Transfer> transfer;
    std::byte* data = nullptr;
    std::uint64_t number = 0;
    bool is_moving = false;
  };
  using Ways = std::map<std::pair<Rank, Kind>, Way>;

  Way& way(Ways& ways, Rank peer, Kind kind, bool sends, std::uint64_t number, std::byte* data);
  std::size_t bytes_of(Rank giver, Rank taker, Kind kind) const;
  static void start(Way& way);
  bool finish(Ways& ways, const Done& done);

  Engine& engine_;
  const Layout& layout_;
  std::uint32_t collective_ = 0;
  Ways sending_, receiving_;
  std::size_t open_ = 0;
};

}  // namespace pyc::server
