// Groups of a generator that runs in one rank's engine, and the protocol between it and the workers (Ripples section
// 4.1): a request, a grant to every member as the group starts, an acknowledgement from each.
//
// Everything is a notice, and notices between two ranks keep their order; so a worker's acknowledgement never overtakes
// the request before it, nor a grant the one before it. The worker in the rank of the generator speaks to it in the
// same way.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/rank_set.h"
#include "engine/collective.h"
#include "engine/engine.h"
#include "groups/generator.h"
#include "services/partial_reduce/group_source.h"

namespace pyc {

class GeneratedGroups final : public GroupSource {
 public:
  /// Every rank: a worker. `engine`'s own rank makes the generator if it is `server`.
  GeneratedGroups(Engine& engine, std::uint32_t collective, const GroupOptions& options, Rank server);

  void request(std::int64_t step, const std::vector<Rank>& group) override;
  const Turn* next() const override;
  void performed() override;
  void leave() override;
  void on_notice(Rank from, ConstBytes notice) override;
  bool finished() const override { return finished_; }
  std::vector<Rank> not_left() const override { return left_.missing(engine_.size()); }
  void inquire() override;
  std::optional<std::string> explanation() const override;
  std::string silence() const override;

 private:
  enum Kind : std::uint32_t {
    // to the generator
    kRequest,
    kAcknowledge,
    kLeave,  // to everybody else too
    kInquiry,
    // from it
    kGrant,
    kFinished,
    kExplanation,
  };
  struct Note {
    NoticeHeader header;
    std::int64_t number;  // kRequest: the step; kAcknowledge: the sequence
  };
  /// A long group takes several, one after the other.
  struct GrantNotice {
    static constexpr std::size_t kMost = 7;
    NoticeHeader header;
    Sequence sequence;
    std::int64_t newest_step;
    std::int32_t conflicts;
    std::uint16_t members;  // in all
    std::uint8_t here;      // ... of which in this notice
    bool answers;
    Rank ranks[kMost];
  };
  static_assert(sizeof(GrantNotice) <= kMaxNotice);
  /// Text in pieces; the last one is not full.
  struct Piece {
    static constexpr std::size_t kMost = kMaxNotice - sizeof(NoticeHeader) - sizeof(std::uint32_t);
    NoticeHeader header;
    std::uint32_t length;
    char text[kMost];
  };
  static_assert(sizeof(Piece) == kMaxNotice);

  /// The generator's side.
  struct Server {
    explicit Server(const GroupOptions& options) : generator(options) {}
    GroupGenerator generator;
    std::int64_t newest_step = 0;
    std::vector<Grant> started;
    bool told_end = false;
  };

  void serve(Rank worker, const Note& note);
  void grant(const Grant& grant);
  void explain(Rank worker);
  void take_grant(const GrantNotice& said);
  void take_piece(const Piece& piece);
  template <class Notice>
  void tell(Rank rank, const Notice& notice);
  void tell_all(Kind kind);
  void tell_server(Kind kind, std::int64_t number);

  Engine& engine_;
  const std::uint32_t collective_;
  const Rank server_rank_;
  std::unique_ptr<Server> server_;  // in one rank
  std::deque<Turn> granted_;        // the last one may be incomplete
  std::size_t missing_ = 0;         // members of it that have not been told yet
  RankSet left_;
  bool finished_ = false;
  std::string text_;
  bool explained_ = false;
};

}  // namespace pyc
