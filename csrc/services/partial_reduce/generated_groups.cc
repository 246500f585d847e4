#include "services/partial_reduce/generated_groups.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "core/error.h"

namespace pyc {
namespace {

constexpr std::size_t kLongestExplanation = 2000;  // characters; a generator of many workers could say much more

template <class Notice>
Notice read(ConstBytes bytes) {
  Notice said;
  if (bytes.size() != sizeof said) throw InternalError("a notice of a group generator has the wrong length");
  std::memcpy(&said, bytes.data(), sizeof said);
  return said;
}

}  // namespace

GeneratedGroups::GeneratedGroups(Engine& engine, std::uint32_t collective, const GroupOptions& options, Rank server)
    : engine_(engine), collective_(collective), server_rank_(server) {
  if (engine.rank() == server) server_ = std::make_unique<Server>(options);
}

// ------------------------------------------------------------------------------------------------ a worker

void GeneratedGroups::request(std::int64_t step, const std::vector<Rank>&) { tell_server(kRequest, step); }

const Turn* GeneratedGroups::next() const {
  const bool complete = granted_.size() > 1 || (granted_.size() == 1 && missing_ == 0);
  return complete ? &granted_.front() : nullptr;
}

void GeneratedGroups::performed() {
  tell_server(kAcknowledge, static_cast<std::int64_t>(granted_.front().sequence));
  granted_.pop_front();
}

void GeneratedGroups::leave() { tell_all(kLeave); }

void GeneratedGroups::take_grant(const GrantNotice& said) {
  if (missing_ == 0) {
    granted_.push_back({said.sequence, {}, said.newest_step, said.conflicts, said.answers});
    missing_ = said.members;
  }
  std::vector<Rank>& members = granted_.back().members;
  members.insert(members.end(), said.ranks, said.ranks + said.here);
  missing_ -= said.here;
}

void GeneratedGroups::inquire() {
  text_.clear();
  explained_ = false;
  tell_server(kInquiry, 0);
}

void GeneratedGroups::take_piece(const Piece& piece) {
  text_.append(piece.text, piece.length);
  explained_ = piece.length < Piece::kMost;
}

std::optional<std::string> GeneratedGroups::explanation() const {
  if (!explained_) return std::nullopt;
  std::string text = "the generator of rank " + std::to_string(server_rank_) + " says: ";
  return text + (text_.empty() ? "no group runs or waits" : text_);
}

std::string GeneratedGroups::silence() const {
  return "the generator of rank " + std::to_string(server_rank_) + " gives no answer (stopped or gone)";
}

// ------------------------------------------------------------------------------------------------ the generator

void GeneratedGroups::serve(Rank worker, const Note& note) {
  if (!server_) throw InternalError("a notice for a group generator that is elsewhere");
  Server& s = *server_;
  s.started.clear();
  const Seconds now = engine_.transport().now();
  switch (note.header.kind) {
    case kRequest:
      s.newest_step = std::max(s.newest_step, note.number);
      s.generator.request(worker, s.started, now);
      break;
    case kAcknowledge:
      s.generator.acknowledge(worker, static_cast<Sequence>(note.number), s.started, now);
      break;
    case kLeave:
      s.generator.leave(worker);
      break;
    default:
      explain(worker);
  }
  for (const Grant& started : s.started) grant(started);
  if (s.told_end || !s.generator.finished()) return;
  s.told_end = true;
  tell_all(kFinished);
}

void GeneratedGroups::grant(const Grant& grant) {
  for (const Rank member : grant.members) {
    for (std::size_t first = 0; first < grant.members.size(); first += GrantNotice::kMost) {
      const auto part = grant.members.subspan(first, std::min(GrantNotice::kMost, grant.members.size() - first));
      GrantNotice said{.header = {collective_, kGrant},
                       .sequence = grant.sequence,
                       .newest_step = server_->newest_step,
                       .conflicts = grant.conflicts,
                       .members = static_cast<std::uint16_t>(grant.members.size()),
                       .here = static_cast<std::uint8_t>(part.size()),
                       .answers = grant.answers(member),
                       .ranks = {}};
      std::copy(part.begin(), part.end(), said.ranks);
      tell(member, said);
    }
  }
}

/// What is running and pending, on one line; the worker's own groups first, since the end may be cut off.
void GeneratedGroups::explain(Rank worker) {
  std::string text = server_->generator.describe(worker);
  if (text.size() > kLongestExplanation) text = text.substr(0, kLongestExplanation) + " ...";
  std::replace(text.begin(), text.end(), '\n', '|');
  for (std::size_t first = 0; first <= text.size(); first += Piece::kMost) {
    Piece piece{.header = {collective_, kExplanation}, .length = 0, .text = {}};
    const std::string part = text.substr(first, Piece::kMost);
    piece.length = static_cast<std::uint32_t>(part.size());
    std::copy(part.begin(), part.end(), piece.text);
    tell(worker, piece);
  }
}

// ------------------------------------------------------------------------------------------------ notices

template <class Notice>
void GeneratedGroups::tell(Rank rank, const Notice& notice) {
  engine_.transport().notify(rank, std::as_bytes(std::span(&notice, 1)));
}

void GeneratedGroups::tell_all(Kind kind) {
  for (Rank r = 0; r < engine_.size(); ++r) tell(r, Note{{collective_, kind}, 0});
}

void GeneratedGroups::tell_server(Kind kind, std::int64_t number) {
  tell(server_rank_, Note{{collective_, kind}, number});
}

void GeneratedGroups::on_notice(Rank from, ConstBytes bytes) {
  NoticeHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  switch (header.kind) {
    case kGrant:
      return take_grant(read<GrantNotice>(bytes));
    case kExplanation:
      return take_piece(read<Piece>(bytes));
    case kFinished:
      finished_ = true;
      return;
    case kLeave:
      left_.insert(from);
      if (!server_) return;
      [[fallthrough]];
    default:
      return serve(from, read<Note>(bytes));
  }
}

}  // namespace pyc
