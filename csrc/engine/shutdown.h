// How engines end, such that no rank frees a communicator while a message to it is on its way.
//
// Two waves run up and down a binomial tree rooted at rank 0, with one message per edge and direction:
//
//   closed   A rank that has closed, and whose children have reported that their subtrees have, reports to its parent.
//            The root announces that all have closed, and each engine becomes *silent*: only this class sends.
//   count    Each rank adds up how many active messages the engines of its subtree have sent and received, without
//            messages of this class, and reports both sums to its parent. If the totals are equal, the root announces
//            the end. Otherwise a message is still on its way, and the root starts another count.
//
// Why it is correct. A rank counts after it has become silent, so its number of sent messages is final. The total
// received can only have grown since it was counted, and cannot exceed the total sent. If both are equal, no message is
// on its way and none will be sent. Messages of this class go up and down each edge in turn, and the end is the last: a
// rank that has passed it on receives nothing more. Counting again needs no clock, because each wave takes as long as a
// message to every rank and back. Messages with a posted receive are not counted, because a collective ends after them.
//
// A rank that has closed must be driven until it has the end; afterwards it needs no other rank.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/types.h"
#include "engine/control.h"

namespace pyc {

class Shutdown {
 public:
  /// Active messages that this rank's engine has sent and received, without messages of this class.
  struct Traffic {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
  };

  Shutdown(Rank rank, Rank size, SendControl send, std::function<Traffic()> traffic);

  /// This rank has closed and starts nothing more.
  void close();
  bool closed() const { return closed_; }
  /// Every rank has closed.
  bool is_silent() const { return silent_; }
  /// No message is on its way to this rank.
  bool ended() const { return ended_; }

  /// At the root: counts again if needed. Returns whether it did.
  bool advance();
  void on_message(Control kind, ConstBytes message);
  /// Messages of this class that this rank has sent.
  std::uint64_t sent() const { return sent_; }

 private:
  struct Message {
    MessageHeader header;
    std::uint64_t sent;
    std::uint64_t received;
  };

  void report_closed();
  void fall_silent();
  void count();
  void report_count();
  void end();
  void send(Rank to, Control kind, const Traffic& traffic);
  void send_down(Control kind);

  SendControl send_;
  std::function<Traffic()> traffic_;
  Rank parent_;  // kNoRank at the root
  std::vector<Rank> children_;
  bool closed_ = false;
  bool silent_ = false;
  bool ended_ = false;
  bool must_count_ = false;  // at the root: the last count found a message on its way
  std::size_t reports_ = 0;  // by children, in the current wave
  Traffic below_;            // counts of the children
  std::uint64_t sent_ = 0;
};

}  // namespace pyc
