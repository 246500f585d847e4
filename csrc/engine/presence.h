// Metadata of a block of data: its contributors, and the state of their parts of the round. It travels as the header of
// every message, and is merged by a reduction and replaced by a copy, so at the end it is the same on every rank. A
// block without contributors is *absent*. It has no values, is sent as a header only, and adds nothing to a reduction.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/types.h"
#include "schedule/schedule.h"
#include "transport/transport.h"

namespace pyc {

/// The fixed part. On the wire, `members` words of the contributors' bitmap follow.
struct Presence {
  RoundNumber round = 0;         ///< wire only: the round of the sender's run
  std::uint32_t collective = 0;  ///< wire only
  std::uint32_t contributors = 0;
  std::uint32_t active = 0;   ///< contributors that passed data for this very round
  std::uint32_t left = 0;     ///< ranks that took part after they had left (flush or close)
  std::uint32_t closed = 0;   ///< ranks among `left` that had closed
  Rank initiator = kNoRank;   ///< lowest rank that started the round
  std::uint32_t members = 0;  ///< wire only: words of bitmap that follow
  std::uint32_t failed = 0;   ///< wire only: 1 if the sender's data is lost, so that no rank may use the round

  bool present() const { return contributors > 0; }
};
static_assert(sizeof(Presence) == 40 && std::is_trivially_copyable_v<Presence>);

class PresenceTable {
 public:
  /// Without `track_members`, only the number of contributors is kept, not their ranks (very large simulations).
  PresenceTable(std::uint32_t blocks, Rank size, bool track_members)
      : words_(track_members ? (static_cast<std::size_t>(size) + 63) / 64 : 0),
        presence_(blocks),
        members_(blocks * words_),
        header_(sizeof(Presence) + words_ * sizeof(std::uint64_t)) {}

  void clear() {
    std::fill(presence_.begin(), presence_.end(), Presence{});
    std::fill(members_.begin(), members_.end(), 0);
  }

  const Presence& at(std::uint32_t block) const { return presence_[block]; }
  std::span<const std::uint64_t> members(std::uint32_t block) const {
    return {members_.data() + block * words_, words_};
  }

  /// Sets this node's own part, whose contributors are in the bitmap `members`.
  void assign(BlockRange range, const Presence& presence, std::span<const std::uint64_t> members) {
    for (std::uint32_t b = range.first; b < range.first + range.count; ++b) {
      presence_[b] = presence;
      std::copy_n(members.begin(), words_, words(b));
    }
  }

  /// into = from. All blocks of `from` are the same (the checker ensures this), so only the first is read.
  void copy(BlockRange into, BlockRange from) {
    for (std::uint32_t b = into.first; b < into.first + into.count; ++b) {
      presence_[b] = presence_[from.first];
      std::copy_n(words(from.first), words_, words(b));
    }
  }

  /// into = into and from together. No rank may be in both.
  void merge(BlockRange into, BlockRange from) {
    for (std::uint32_t b = into.first; b < into.first + into.count; ++b) {
      Presence& to = presence_[b];
      const Presence& other = presence_[from.first];
      to.contributors += other.contributors;
      to.active += other.active;
      to.left += other.left;
      to.closed += other.closed;
      to.initiator = std::min(to.initiator, other.initiator);
      for (std::size_t w = 0; w < words_; ++w) words(b)[w] |= words(from.first)[w];
    }
  }

  /// The header of a block for the wire; valid until the next call.
  ConstBytes header(std::uint32_t block, RoundNumber round, std::uint32_t collective, bool failed) {
    Presence wire = presence_[block];
    wire.round = round;
    wire.collective = collective;
    wire.members = wire.present() ? static_cast<std::uint32_t>(words_) : 0;
    wire.failed = failed ? 1 : 0;
    std::memcpy(header_.data(), &wire, sizeof wire);
    if (wire.members > 0) std::memcpy(header_.data() + sizeof wire, words(block), words_ * sizeof(std::uint64_t));
    return {header_.data(), sizeof wire + wire.members * sizeof(std::uint64_t)};
  }

  /// into = the presence in a message's header. Returns the fixed part.
  Presence receive(BlockRange into, ConstBytes header) {
    Presence wire;
    if (header.size() < sizeof wire) throw InternalError("a message has a truncated header");
    std::memcpy(&wire, header.data(), sizeof wire);
    if (header.size() != sizeof wire + wire.members * sizeof(std::uint64_t) ||
        wire.members != (wire.present() ? words_ : 0)) {
      throw InternalError("a message's header has the wrong length");
    }
    for (std::uint32_t b = into.first; b < into.first + into.count; ++b) {
      presence_[b] = wire;
      std::fill_n(words(b), words_, 0);
      if (wire.members > 0) std::memcpy(words(b), header.data() + sizeof wire, words_ * sizeof(std::uint64_t));
    }
    return wire;
  }

 private:
  std::uint64_t* words(std::uint32_t block) { return members_.data() + block * words_; }

  std::size_t words_;  // per block
  std::vector<Presence> presence_;
  std::vector<std::uint64_t> members_;
  std::vector<std::byte> header_;
};

}  // namespace pyc
