// What ranks agree on before they make something together: whether their texts are the same, and which they are if not.
//
// Ranks take the same *steps* in the same order; a step is a comparison of short texts, or a text handed down. All goes
// along a binomial tree rooted at rank 0, by active messages alone: no receive is posted that an absent rank would
// leave behind, and a message fits into the transport's shortest kind.
//
//   comparison   Each rank sends its parent a digest of its subtree's text, or that the subtree differs, once it and
//                all its children have come. The root's verdict goes down: so a rank sends and receives at most
//                2 ceil(log2 P) messages, whatever the texts are. Only if ranks differ do texts move: up the tree,
//                those of neighbouring ranks that are alike as one, and all of them down again.
//   hand down    The first of some members gives a text to the others, along a binomial tree of these.
//   withdrawal   A rank that waits no longer asks the root to let the step fail. If the root has not decided yet it
//                never does, and says so; else its verdict is on its way to that rank.
//
// Why it is right. A rank reports only after its own call and its children's reports, so the root decides after every
// rank has called: nobody completes a comparison that some rank has not come to. The root alone decides, and each rank
// takes over what its parent sends, so all ranks conclude alike; where they differ, all are given the same list.
// Messages between two ranks stay in order and name their step, so one for a step that the application has not come to
// yet waits here, and a rank that is ahead (by one comparison at most, since the next needs everybody) disturbs nobody.
// What is forwarded is forwarded on arrival, not when the application looks: a rank that has its verdict may leave
// once the messages that follow from it have left. A comparison that somebody has withdrawn from is complete nowhere,
// and one that is complete somewhere comes to an end everywhere: both by the one decision of the root. A rank
// fails alone only if the root, or a rank between, is not driven meanwhile: stopped, gone, or outside of any call where
// only calls drive it. A root that comes later knows what was sent to it before, and takes it in before it decides.
//
// Texts are the same if their lengths and 64-bit digests are: a mistake is missed once in 2^64 mistakes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"
#include "engine/control.h"

namespace pyc {

class Bootstrap {
 public:
  /// The longest text of an application, in bytes; an engine adds a few of its own.
  static constexpr std::size_t kMaxText = 4096;

  Bootstrap(Rank rank, Rank size, SendControl send);

  /// Begins the next step: a comparison.
  void compare(std::string text);
  /// Begins the next step: `members`, which do not change until it is done, are given the text of the first of them.
  /// Ranks that are not among them come to the step with members of their own.
  void hand_down(std::string text, const std::vector<Rank>& members);

  /// The ranks next to this one in the tree. A comparison that completes nowhere since some ranks never come to it is
  /// waited for by a neighbour of one of these.
  std::vector<Rank> neighbours() const;

  /// Steps begun here.
  std::uint64_t steps() const { return begun_; }
  /// Whether the newest step is done.
  bool done() const;
  /// Waits no longer for the newest step: it is `done` soon, because it has been decided, or `withdrawn`.
  void withdraw();
  /// The root never decides the newest step. (Where a text is handed down, some ranks may have it.)
  bool withdrawn() const { return newest().withdrawn; }
  /// After what has arrived was taken in. Whether it did anything.
  bool advance();
  /// The outcome of a comparison that is done: nothing if all texts are the same, else the text of each rank.
  std::optional<std::vector<std::string>> texts() const;
  /// The text that a step which is done has handed down.
  const std::string& handed_down() const { return newest().handed_down; }

  void on_message(Rank from, Control kind, ConstBytes message);

 private:
  struct Message {
    MessageHeader header;
    std::uint64_t step;
    std::uint64_t value;     // a digest; of a text that follows: its bytes in all
    std::uint32_t length;    // of the text of a digest
    std::uint32_t is_alike;  // the subtree, or all ranks
  };
  struct Digest {
    std::uint64_t value = 0;
    std::uint32_t length = 0;
    bool operator==(const Digest&) const = default;
  };
  /// Of neighbouring ranks.
  struct SameText {
    Rank first;
    Rank last;
    std::string text;
  };
  struct Step {
    bool begun = false;
    bool done = false;
    bool decided = false;    // by the root
    bool withdrawn = false;  // at the root: it is never decided
    std::string text;        // of this rank
    std::optional<Digest> digest;
    bool is_alike = true;  // as far as known, the ranks of the subtree
    std::size_t reports = 0;
    std::map<Rank, std::string> arriving;  // texts on their way, by sender
    std::size_t gathered = 0;              // children whose texts are complete
    std::vector<SameText> texts;           // of all ranks
    std::vector<Rank> below;               // hand down: to whom it is sent next
    std::string handed_down;
  };

  static Digest digest_of(std::string_view text);
  static std::string packed(const std::vector<SameText>& texts);
  static void unpack(std::string_view bytes, std::vector<SameText>& onto);

  Step& begin();
  const Step& newest() const { return steps_.at(begun_); }
  void add_report(Step& step, bool is_alike, const Digest& digest);
  void report(std::uint64_t number);
  bool withdraw(std::uint64_t number);
  void decide(std::uint64_t number, bool all_alike);
  void gather(std::uint64_t number);
  void publish(std::uint64_t number, const std::string& all);
  void hand_on(std::uint64_t number);
  void send_text(Rank to, Control kind, std::uint64_t number, std::string_view text);
  bool take_chunk(std::string& into, const Message& message, ConstBytes bytes);

  Rank rank_;
  Rank size_;
  SendControl send_;
  Rank parent_;  // kNoRank: this is the root
  std::vector<Rank> children_;
  std::uint64_t begun_ = 0;
  bool must_decide_ = false;             // the root: all have come
  std::map<std::uint64_t, Step> steps_;  // the newest, and later ones that others are at
};

}  // namespace pyc
