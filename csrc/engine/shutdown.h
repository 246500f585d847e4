// How engines end: nobody frees a communicator to which a message is still on its way.
//
// Along a binomial tree rooted at rank 0, in two waves up and down, each one message per edge and direction:
//
//   closed   A rank that has closed, and whose children have reported it of their subtrees, reports it to its parent.
//            When all have reported, the root announces it to all. From then on an engine is *silent*: it sends nothing
//            but the messages of this wave.
//   count    Each rank adds up how many active messages the engines of its subtree have sent and received, without
//            those of this class, and reports them to its parent. If the two numbers of all ranks are equal, the root
//            announces that this is the end; else something is still on its way, and it lets them count again.
//
// Why it is right. A rank counts after it has become silent, so what it has sent does not change any more; what all
// have received can only have grown since it was counted, and cannot exceed what was sent. So if both are equal nothing
// is on its way, and nothing will be sent. Of the messages of this class itself, one goes up and one comes down each
// edge in turns, and "the end" is the last: who has it, and has passed it on, is sent nothing more. Counting again
// needs no clock: each wave takes as long as a message to every rank and back, and what is on its way arrives
// meanwhile. Messages that match a posted receive are not counted: a collective ends only when its receives have
// completed.
//
// A rank that has closed must be driven until it has the end; then it needs nobody.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/types.h"
#include "engine/control.h"

namespace pyc {

class Shutdown {
 public:
  /// Active messages that this rank's engine has sent and received, those of this class apart.
  struct Traffic {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
  };

  Shutdown(Rank rank, Rank size, SendControl send, std::function<Traffic()> traffic);

  /// This rank has closed: it starts nothing more.
  void close();
  bool closed() const { return closed_; }
  /// Every rank has closed.
  bool is_silent() const { return silent_; }
  /// Nothing is on its way to this rank.
  bool ended() const { return ended_; }

  /// The root counts again, if it must. Whether it did.
  bool advance();
  void on_message(Control kind, ConstBytes message);
  /// Messages of this class, sent from here.
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
  Rank parent_;  // kNoRank: this is the root
  std::vector<Rank> children_;
  bool closed_ = false;
  bool silent_ = false;
  bool ended_ = false;
  bool must_count_ = false;  // the root: the last count found something on its way
  std::size_t reports_ = 0;  // by children, in the present wave
  Traffic below_;            // that they have counted
  std::uint64_t sent_ = 0;
};

}  // namespace pyc
