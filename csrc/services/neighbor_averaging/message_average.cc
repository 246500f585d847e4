#include "services/neighbor_averaging/message_average.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/error.h"
#include "schedule/builder.h"
#include "services/common/tags.h"

namespace pyc {
namespace {

constexpr Rank kRequester = 0;
constexpr Rank kOther = 1;

std::size_t segments_in(const ModelShape& shape) {
  const std::size_t fewest = (shape.segments() + MessageAverage::kMostPieces - 1) / MessageAverage::kMostPieces;
  return std::max<std::size_t>({1, MessageAverage::kPieceBytes / shape.segment_bytes(), fewest});
}

}  // namespace

MessageAverage::Role MessageAverage::plan_of(Rank role, const ModelShape& shape) {
  ScheduleBuilder s(role, 2);
  const Slice values = s.buffer(shape.count, "values");
  std::vector<OpId> releases;
  std::vector<OpId> signals;
  const std::size_t longest = segments_in(shape) * shape.segment_count;
  for (std::size_t first = 0; first < shape.count; first += longest) {
    const Slice piece = values.part(first, std::min(longest, shape.count - first));
    if (role == kRequester) {
      releases.push_back(s.trigger("release"));
      s.gate(releases.back());
      s.send(piece, kOther);
      s.ungate();
      s.recv(piece, kOther);
      signals.push_back(s.signal("step", s.writers(piece)));
    } else {
      s.recv(piece, kRequester);
      signals.push_back(s.signal("values", s.writers(piece)));
      s.gate(signals.back());
      s.send(piece, kRequester);
      s.ungate();
    }
  }
  return {std::move(s).build(), values, std::move(releases), std::move(signals), nullptr};
}

void MessageAverage::check(const ModelShape& shape, Tag max_tag) {
  check_tags(plan_of(kRequester, shape).plan, "pairwise average", max_tag);
}

MessageAverage::MessageAverage(Engine& engine, Memory& memory, std::uint32_t collective, const PairwiseMailbox& mailbox,
                               ModelBoard& board, std::shared_ptr<std::byte[]> values)
    : engine_(engine),
      memory_(memory),
      collective_(collective),
      mailbox_(mailbox),
      board_(board),
      segments_per_piece_(segments_in(board.shape())),
      requester_(plan_of(kRequester, board.shape())),
      other_(plan_of(kOther, board.shape())),
      peers_(2),
      values_(std::move(values)),
      lent_(requester_.signals.size()) {
  make_run(requester_, kRequester);
  make_run(other_, kOther);
}

void MessageAverage::make_run(Role& role, Rank number) {
  const DataType type = board_.shape().type;
  const RunContext context{.schedule = role.plan,
                           .peers = peers_,
                           .members = 2,
                           .memory = memory_,
                           .transport = engine_.transport(),
                           .open_transfers = engine_.open_transfers(),
                           .elements = {type, type},
                           .op = ReduceOp::kSum,
                           .element_bytes = size_of(type),
                           .collective = collective_,
                           .track_members = false,
                           .trace = engine_.trace()};
  const auto on_signal = [this, number](Run&, OpId signal) {
    if (number == kRequester) return take_step(piece_of(requester_, signal));
    meet(piece_of(other_, signal));
  };
  role.run =
      std::make_unique<Run>(context, engine_.reserve_run(), std::vector<BufferId>{role.values.buffer}, on_signal);
  engine_.set_run(*role.run);
  role.run->bind(role.values.buffer, values_.get());
}

std::size_t MessageAverage::piece_of(const Role& role, OpId signal) const {
  return static_cast<std::size_t>(std::lower_bound(role.signals.begin(), role.signals.end(), signal) -
                                  role.signals.begin());
}

std::size_t MessageAverage::first_segment(std::size_t piece) const { return piece * segments_per_piece_; }

std::size_t MessageAverage::end_segment(std::size_t piece) const {
  return std::min((piece + 1) * segments_per_piece_, board_.segments());
}

std::byte* MessageAverage::values_of(std::size_t piece) const {
  return values_.get() + first_segment(piece) * board_.shape().segment_bytes();
}

Slice MessageAverage::slice_of(const Role& role, std::size_t piece) const {
  const std::size_t longest = segments_per_piece_ * board_.shape().segment_count;
  return role.values.part(piece * longest, std::min(longest, board_.shape().count - piece * longest));
}

// ------------------------------------------------------------------------------------------------ the requester

void MessageAverage::request(Rank to) {
  state_ = State::kRequested;
  partner_ = to;
  mailbox_.send(to, AverageRequest{++number_});
}

void MessageAverage::check_answer(Rank from, std::uint64_t number) const {
  if (state_ == State::kRequested && from == partner_ && number == number_) return;
  throw InternalError("an answer to an average that was not requested");
}

void MessageAverage::on_accepted(Rank from, const AverageAccepted& accepted) {
  check_answer(from, accepted.number);
  state_ = State::kLending;
  start(requester_, engine_.rank(), from, number_);
  begin_lending();
}

void MessageAverage::on_declined(Rank from, const AverageDeclined& declined) {
  check_answer(from, declined.number);
  state_ = State::kIdle;
  ended_ = {from, false, declined.why};
}

void MessageAverage::start(Role& role, Rank requester, Rank other, std::uint64_t number) {
  peers_[kRequester] = requester;
  peers_[kOther] = other;
  averaged_ = false;
  role.run->arm(number);
}

void MessageAverage::begin_lending() {
  const Presence present{.contributors = 1};
  requester_.run->presence().assign(requester_.plan.blocks_of(requester_.values), present, {});
  next_piece_ = 0;
  lend_some();
}

bool MessageAverage::lend_some() {
  const std::size_t first = next_piece_;
  std::size_t bytes = 0;
  for (; next_piece_ < lent_.size() && bytes < kBytesPerPass; ++next_piece_) {
    lent_[next_piece_] = board_.lend(first_segment(next_piece_), end_segment(next_piece_), values_of(next_piece_));
    if (!lent_[next_piece_]) mark_absent(requester_, next_piece_);
    requester_.run->fire(requester_.releases[next_piece_]);
    bytes += slice_of(requester_, next_piece_).count * size_of(board_.shape().type);
  }
  requester_.run->pump();
  return next_piece_ > first;
}

/// The piece is sent without values.
void MessageAverage::mark_absent(Role& role, std::size_t piece) {
  role.run->presence().assign(role.plan.blocks_of(slice_of(role, piece)), Presence{}, {});
  ++skipped_;
}

bool MessageAverage::is_present(const Role& role, std::size_t piece) const {
  return role.run->presence().at(role.plan.blocks_of(slice_of(role, piece)).first).present();
}

void MessageAverage::take_step(std::size_t piece) {
  if (!lent_[piece]) return;
  const std::byte* const step = is_present(requester_, piece) ? values_of(piece) : nullptr;
  averaged_ = averaged_ || step != nullptr;
  lent_[piece] = false;
  to_take_back_.push_back({piece, step});
  take_back();
}

bool MessageAverage::take_back() {
  while (!to_take_back_.empty()) {
    const auto [piece, step] = to_take_back_.back();
    if (!board_.take_back(first_segment(piece), end_segment(piece), step)) return false;
    to_take_back_.pop_back();
  }
  return true;
}

// ------------------------------------------------------------------------------------------------ the other rank

std::optional<Refusal> MessageAverage::refusal() const {
  if (has_left_) return Refusal::kLeft;
  if (has_failed_) return Refusal::kFailed;
  if (paused_) return Refusal::kPaused;
  if (!idle()) return Refusal::kBusy;
  return std::nullopt;
}

void MessageAverage::on_request(Rank from, const AverageRequest& request) {
  if (const auto why = refusal()) return mailbox_.send(from, AverageDeclined{request.number, *why});
  state_ = State::kMeeting;
  partner_ = from;
  start(other_, from, engine_.rank(), request.number);
  mailbox_.send(from, AverageAccepted{request.number});
}

void MessageAverage::meet(std::size_t piece) {
  if (!is_present(other_, piece)) return;
  const bool met = board_.meet(first_segment(piece), end_segment(piece), values_of(piece));
  if (!met) mark_absent(other_, piece);
  averaged_ = averaged_ || met;
}

// ------------------------------------------------------------------------------------------------ both

bool MessageAverage::advance() {
  if (!take_back()) return false;
  if (state_ == State::kLending && lend_some()) return true;
  const bool lending_ended = state_ == State::kLending && requester_.run->retired();
  const bool meeting_ended = state_ == State::kMeeting && other_.run->retired();
  if (!lending_ended && !meeting_ended) return false;
  if (lending_ended) ended_ = {partner_, averaged_, std::nullopt};
  if (averaged_) board_.count_average(board_.local_rank());
  state_ = State::kIdle;
  return true;
}

void MessageAverage::give_up() {
  for (std::size_t piece = 0; piece < lent_.size(); ++piece) {
    if (lent_[piece]) to_take_back_.push_back({piece, nullptr});
    lent_[piece] = false;
  }
  state_ = State::kIdle;
  take_back();
}

}  // namespace pyc
