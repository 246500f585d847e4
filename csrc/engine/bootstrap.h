// How ranks agree before they make something together: whether their texts are the same and, if not, the texts.
//
// Ranks take the same *steps* in the same order. A step compares short texts or hands a text down, by active messages
// along a binomial tree rooted at rank 0. No receive is posted that an absent rank would leave behind.
//
//   comparison   After its call and the reports of its children, each rank sends its parent a digest of its subtree's
//                text, or that the subtree differs. The root's verdict goes down. A rank sends and receives at most
//                2 ceil(log2 P) messages. Texts are sent only if ranks differ: up the tree, equal texts of neighboring
//                ranks only once, and all of them down again.
//   hand down    The first of some members sends a text to the others, along a binomial tree of the members.
//   withdrawal   A rank that stops waiting asks the root to let the step fail. If the root has not decided yet, it
//                never decides, and confirms this. Otherwise its verdict is on its way to that rank.
//
// Why it is correct. The root decides after every rank has called, and each rank adopts the message of its parent. So
// no rank completes a comparison that another has not joined, and all reach the same result. Messages between two ranks
// stay in order and name their step; a message for a later step waits here. A rank is ahead by at most one comparison.
// Messages are forwarded on arrival, so a rank that has its verdict may leave once its forwarded messages have left.
// Because only the root decides, a comparison that a rank has withdrawn from completes nowhere, and one that completes
// somewhere ends everywhere. A single rank fails only if the root, or a rank between, is not driven: stopped, gone, or
// outside of any call where only calls drive it. A root that calls late handles earlier messages before it decides.
//
// Texts count as the same if their lengths and 64-bit digests are equal, which misses one in 2^64 differences.
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
  /// The longest text of an application, in bytes. The engine adds a few of its own.
  static constexpr std::size_t kMaxText = 4096;

  Bootstrap(Rank rank, Rank size, SendControl send);

  void compare(std::string text);
  /// Begins the next step: the first of `members` (ascending) sends its text to the others. Ranks that are not among
  /// them begin this step with members of their own.
  void hand_down(std::string text, const std::vector<Rank>& members);

  /// The ranks next to this one in the tree. If ranks never join a comparison, a neighbor of one of them waits in it.
  std::vector<Rank> neighbours() const;

  /// The number of steps begun on this rank.
  std::uint64_t steps() const { return begun_; }
  /// Whether the newest step is done.
  bool done() const;
  /// Stops waiting for the newest step. It is soon `done`, because it was decided, or `withdrawn`.
  void withdraw();
  /// Whether the root never decides the newest step. (Some ranks may have the text of a hand down.)
  bool withdrawn() const { return newest().withdrawn; }
  /// Call it after arrived messages were handled. Returns whether it did anything.
  bool advance();
  /// The result of a completed comparison: nullopt if all texts are the same, otherwise the text of each rank.
  std::optional<std::vector<std::string>> texts() const;
  const std::string& handed_down() const { return newest().handed_down; }

  void on_message(Rank from, Control kind, ConstBytes message);

 private:
  struct Message {
    MessageHeader header;
    std::uint64_t step;
    std::uint64_t value;     // a digest; for a text, its total length
    std::uint32_t length;    // of the digested text
    std::uint32_t is_alike;  // the texts of the subtree, or of all ranks
  };
  struct Digest {
    std::uint64_t value = 0;
    std::uint32_t length = 0;
    bool operator==(const Digest&) const = default;
  };
  /// A text that neighboring ranks share.
  struct SameText {
    Rank first;
    Rank last;
    std::string text;
  };
  struct Step {
    bool begun = false;
    bool done = false;
    bool decided = false;    // by the root
    bool withdrawn = false;  // the root never decides it
    std::string text;        // of this rank
    std::optional<Digest> digest;
    bool is_alike = true;  // the ranks of the subtree, as far as known
    std::size_t reports = 0;
    std::map<Rank, std::string> arriving;  // incomplete texts, by sender
    std::size_t gathered = 0;              // children whose texts are complete
    std::vector<SameText> texts;           // of all ranks
    std::vector<Rank> below;               // hand down: the next receivers
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
  Rank parent_;  // kNoRank at the root
  std::vector<Rank> children_;
  std::uint64_t begun_ = 0;
  bool must_decide_ = false;             // at the root, after all ranks have called
  std::map<std::uint64_t, Step> steps_;  // the newest, and later ones that other ranks have begun
};

}  // namespace pyc
