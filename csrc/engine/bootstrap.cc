#include "engine/bootstrap.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/patterns.h"
#include "core/splitmix.h"

namespace pyc {
namespace {

constexpr Rank kRoot = 0;  // of the binomial tree

}  // namespace

Bootstrap::Bootstrap(Rank rank, Rank size, SendControl send)
    : rank_(rank), size_(size), send_(std::move(send)), parent_(kNoRank) {
  const BinomialTree tree(rank, size);
  if (!tree.is_root()) parent_ = tree.parent();
  children_ = tree.children();
}

std::vector<Rank> Bootstrap::neighbours() const {
  std::vector<Rank> ranks = children_;
  if (parent_ != kNoRank) ranks.push_back(parent_);
  return ranks;
}

// ------------------------------------------------------------------------------------------------ the application

Bootstrap::Step& Bootstrap::begin() {
  steps_.erase(begun_);
  Step& step = steps_[++begun_];
  step.begun = true;
  return step;
}

void Bootstrap::compare(std::string text) {
  Step& step = begin();
  step.text = std::move(text);
  add_report(step, true, digest_of(step.text));
  report(begun_);
}

void Bootstrap::hand_down(std::string text, const std::vector<Rank>& members) {
  Step& step = begin();
  const auto place = std::lower_bound(members.begin(), members.end(), rank_) - members.begin();
  const BinomialTree tree(static_cast<Rank>(place), static_cast<Rank>(members.size()));
  for (const Rank child : tree.children()) step.below.push_back(members[static_cast<std::size_t>(child)]);
  if (tree.is_root()) {
    step.handed_down = std::move(text);
    step.gathered = 1;
  }
  hand_on(begun_);
}

bool Bootstrap::done() const { return begun_ > 0 && newest().done; }

std::optional<std::vector<std::string>> Bootstrap::texts() const {
  const Step& step = newest();
  if (step.texts.empty()) return std::nullopt;
  std::vector<std::string> all;
  for (const SameText& each : step.texts) {
    for (Rank rank = each.first; rank <= each.last; ++rank) all.push_back(each.text);
  }
  return all;
}

void Bootstrap::withdraw() {
  if (parent_ == kNoRank) {
    withdraw(begun_);
  } else {
    send_(kRoot, bytes_of(Message{control(Control::kWithdraw), begun_, 0, 0, 0}));
  }
}

/// At the root. Returns whether the request is in time.
bool Bootstrap::withdraw(std::uint64_t number) {
  if (number < begun_) return false;
  Step& step = steps_[number];
  if (step.done || step.decided) return false;
  step.withdrawn = true;
  return true;
}

// ------------------------------------------------------------------------------------------------ comparison

Bootstrap::Digest Bootstrap::digest_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, mixed at the end
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return {mix(hash), static_cast<std::uint32_t>(text.size())};
}

void Bootstrap::add_report(Step& step, bool is_alike, const Digest& digest) {
  step.is_alike = step.is_alike && is_alike && (!step.digest || *step.digest == digest);
  step.digest = digest;
}

/// Reports once this rank and its subtree have called.
void Bootstrap::report(std::uint64_t number) {
  const Step& step = steps_[number];
  if (!step.begun || !step.digest || step.reports < children_.size()) return;
  if (parent_ == kNoRank) {
    must_decide_ = true;
    return;
  }
  send_(parent_, bytes_of(Message{control(Control::kDigest), number, step.digest->value, step.digest->length,
                                  step.is_alike ? 1U : 0U}));
}

/// The root decides after it has handled arrived messages: ranks may have withdrawn before it called.
bool Bootstrap::advance() {
  if (!std::exchange(must_decide_, false)) return false;
  const Step& step = steps_[begun_];
  if (!step.withdrawn) decide(begun_, step.is_alike);
  return true;
}

void Bootstrap::decide(std::uint64_t number, bool all_alike) {
  for (const Rank child : children_) {
    send_(child, bytes_of(Message{control(Control::kVerdict), number, 0, 0, all_alike ? 1U : 0U}));
  }
  Step& step = steps_[number];
  step.decided = true;
  step.is_alike = all_alike;
  if (all_alike) {
    step.done = true;
  } else {
    gather(number);
  }
}

/// Continues once the texts of the subtree are here. They follow this rank's text, child by child.
void Bootstrap::gather(std::uint64_t number) {
  Step& step = steps_[number];
  if (step.gathered < children_.size()) return;
  std::vector<SameText> texts{{rank_, rank_, step.text}};
  for (const Rank child : children_) unpack(step.arriving.at(child), texts);
  step.arriving.clear();
  if (parent_ == kNoRank) {
    publish(number, packed(texts));
  } else {
    send_text(parent_, Control::kTexts, number, packed(texts));
  }
}

void Bootstrap::publish(std::uint64_t number, const std::string& all) {
  for (const Rank child : children_) send_text(child, Control::kAllTexts, number, all);
  Step& step = steps_[number];
  unpack(all, step.texts);
  step.done = true;
}

// ------------------------------------------------------------------------------------------------ texts

/// Sends the text once it is here and the receivers are known.
void Bootstrap::hand_on(std::uint64_t number) {
  Step& step = steps_[number];
  if (!step.begun || step.gathered == 0) return;
  for (const Rank rank : step.below) send_text(rank, Control::kHandedDown, number, step.handed_down);
  step.done = true;
}

std::string Bootstrap::packed(const std::vector<SameText>& texts) {
  std::string bytes;
  for (const SameText& each : texts) {
    const std::uint32_t head[] = {static_cast<std::uint32_t>(each.first), static_cast<std::uint32_t>(each.last),
                                  static_cast<std::uint32_t>(each.text.size())};
    bytes.append(reinterpret_cast<const char*>(head), sizeof head);
    bytes += each.text;
  }
  return bytes;
}

void Bootstrap::unpack(std::string_view bytes, std::vector<SameText>& onto) {
  while (!bytes.empty()) {
    const auto head = read_front<std::array<std::uint32_t, 3>>(std::as_bytes(std::span(bytes)));
    bytes.remove_prefix(sizeof head);
    if (bytes.size() < head[2]) throw InternalError("the texts of a comparison are cut off");
    const std::string_view text = bytes.substr(0, head[2]);
    bytes.remove_prefix(text.size());
    if (!onto.empty() && onto.back().text == text) {
      onto.back().last = static_cast<Rank>(head[1]);
    } else {
      onto.push_back({static_cast<Rank>(head[0]), static_cast<Rank>(head[1]), std::string(text)});
    }
  }
}

/// Sends the text in pieces. An empty text is one piece.
void Bootstrap::send_text(Rank to, Control kind, std::uint64_t number, std::string_view text) {
  std::byte piece[kMaxActiveMessage];
  const Message head{control(kind), number, text.size(), 0, 0};
  std::memcpy(piece, &head, sizeof head);
  do {
    const std::size_t length = std::min(text.size(), sizeof piece - sizeof head);
    std::copy_n(reinterpret_cast<const std::byte*>(text.data()), length, piece + sizeof head);
    send_(to, {piece, sizeof head + length});
    text.remove_prefix(length);
  } while (!text.empty());
}

/// Returns whether the text is complete.
bool Bootstrap::take_chunk(std::string& into, const Message& message, ConstBytes bytes) {
  const ConstBytes piece = bytes.subspan(sizeof message);
  into.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  if (into.size() > message.value) throw wrong_length(bytes);
  return into.size() == message.value;
}

void Bootstrap::on_message(Rank from, Control kind, ConstBytes bytes) {
  const bool has_text = kind != Control::kDigest && kind != Control::kVerdict;
  const auto message = has_text ? read_front<Message>(bytes) : read<Message>(bytes);
  const std::uint64_t number = message.step;
  if (number < begun_) return;  // the step was given up
  Step& step = steps_[number];
  switch (kind) {
    case Control::kDigest:
      ++step.reports;
      add_report(step, message.is_alike != 0, {message.value, message.length});
      return report(number);
    case Control::kVerdict:
      return decide(number, message.is_alike != 0);
    case Control::kTexts:
      if (!take_chunk(step.arriving[from], message, bytes)) return;
      ++step.gathered;
      return gather(number);
    case Control::kAllTexts:
      if (!take_chunk(step.arriving[from], message, bytes)) return;
      return publish(number, std::exchange(step.arriving, {})[from]);
    case Control::kHandedDown:
      if (!take_chunk(step.handed_down, message, bytes)) return;
      step.gathered = 1;
      return hand_on(number);
    case Control::kWithdraw:  // if it is too late, the verdict is on its way
      if (withdraw(number)) send_(from, bytes_of(Message{control(Control::kWithdrawn), number, 0, 0, 0}));
      return;
    case Control::kWithdrawn:
      step.withdrawn = true;
      return;
    default:
      throw InternalError("a message that is none of the bootstrap");
  }
}

}  // namespace pyc
