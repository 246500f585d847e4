#include "diagnostics/flight_recorder.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

#include "core/hot.h"
#include "diagnostics/json.h"

namespace pyc {
namespace {

constexpr std::array<const char*, 5> kStates{"called", "started", "running", "completed", "given"};

/// Seconds with six decimals, independent of the locale's decimal point.
std::string json_of(Seconds time) {
  const auto microseconds = static_cast<std::int64_t>(std::max(time, 0.0) * 1e6);
  char text[32];
  std::snprintf(text, sizeof text, "%lld.%06lld", static_cast<long long>(microseconds / 1'000'000),
                static_cast<long long>(microseconds % 1'000'000));
  return text;
}

template <class Items, class Text>
std::string json_list(const Items& items, Text text_of) {
  std::string text = "[";
  for (const auto& item : items) {
    if (text.size() > 1) text += ',';
    text += text_of(item);
  }
  return text + "]";
}

}  // namespace

FlightRecorder::FlightRecorder(const Transport& transport, std::size_t rounds, Trace* trace)
    : transport_(transport), trace_(trace), entries_(rounds) {
  if (on()) opened(0, "the communicator");
}

void FlightRecorder::set_group(std::string group) {
  const std::lock_guard lock(mutex_);
  group_ = std::move(group);
}

void FlightRecorder::opened(std::uint32_t collective, const std::string& name) {
  if (!on()) return;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Track>& track = tracks_[collective];
  track = std::make_shared<Track>();
  track->collective = collective;
  track->name = name;
}

/// Under the mutex.
std::shared_ptr<FlightRecorder::Track> FlightRecorder::find(std::uint32_t collective) const {
  const auto found = tracks_.find(collective);
  return found == tracks_.end() ? nullptr : found->second;
}

std::shared_ptr<FlightRecorder::Track> FlightRecorder::track_of(std::uint32_t collective) const {
  const std::lock_guard lock(mutex_);
  return find(collective);
}

void FlightRecorder::left(std::uint32_t collective) {
  const std::lock_guard lock(mutex_);
  if (const auto track = find(collective)) track->left = true;
}

void FlightRecorder::ended(std::uint32_t collective) {
  const std::lock_guard lock(mutex_);
  if (const auto track = find(collective)) track->ended = true;
  const auto has_ended = [](const auto& item) { return item.second->ended; };
  if (std::count_if(tracks_.begin(), tracks_.end(), has_ended) > std::ptrdiff_t{kMostEnded}) {
    tracks_.erase(std::find_if(tracks_.begin(), tracks_.end(), has_ended));
  }
}

/// Returns the entry of a round, and makes one if the round is new. Null if it was overwritten. Under the mutex.
PYC_HOT FlightRecorder::Entry* FlightRecorder::entry_of(Track& track, RoundNumber round) {
  if (round >= track.begun) {
    track.begun = round + 1;
    Entry& entry = entries_[recorded_++ % entries_.size()];
    entry = {};
    entry.collective = track.collective;
    entry.round = round;
    return &entry;
  }
  const std::uint64_t oldest = recorded_ - std::min<std::uint64_t>(recorded_, entries_.size());
  for (std::uint64_t i = recorded_; i > oldest; --i) {  // nearly always the newest
    Entry& entry = entries_[(i - 1) % entries_.size()];
    if (entry.collective == track.collective && entry.round == round) return &entry;
  }
  return nullptr;
}

PYC_HOT void FlightRecorder::note_at(Track* track, RoundNumber round, State state, Seconds when,
                                     const RoundOutcome& outcome) {
  if (track == nullptr) return;
  const std::lock_guard lock(mutex_);
  if (state == State::kCalled || state == State::kGiven) last_call_ = when;
  if (state == State::kCalled && track->gave_up >= 0) track->awaited.clear();
  if (state >= State::kCompleted) track->completed = std::max(track->completed, round + 1);
  Entry* const entry = entry_of(*track, round);
  if (entry == nullptr) return;
  entry->state = std::max(entry->state, state);
  Seconds& time = entry->times[static_cast<std::size_t>(state)];
  if (time < 0) time = when;
  if (outcome.initiator == kNoRank) return;
  entry->initiator = outcome.initiator;
  entry->contributor_count = outcome.contributor_count;
  entry->members_known = !outcome.contributors.empty() && outcome.contributors.size() <= kWords;
  if (entry->members_known) std::copy(outcome.contributors.begin(), outcome.contributors.end(), entry->members.begin());
}

void FlightRecorder::waits_for(std::uint32_t collective, std::string what) {
  const std::lock_guard lock(mutex_);
  if (const auto track = find(collective)) track->awaited = std::move(what);
}

FlightRecorder::Waiting::Waiting(FlightRecorder& recorder, std::uint32_t collective, std::string what,
                                 RoundNumber round)
    : recorder_(recorder),
      collective_(collective),
      round_(round),
      begun_(recorder.transport_.now()),
      exceptions_(std::uncaught_exceptions()),
      traced_(recorder.trace_ == nullptr ? std::string() : what) {
  const std::lock_guard lock(recorder_.mutex_);
  const auto track = recorder_.find(collective_);
  if (!track) return;
  track->awaited = std::move(what);
  track->awaited_round = round;
  track->since = begun_;
  track->gave_up = kNotYet;
}

FlightRecorder::Waiting::~Waiting() {
  const Seconds now = recorder_.transport_.now();
  if (recorder_.trace_ != nullptr) recorder_.trace_->add_wait(begun_, now, collective_, round_, traced_);
  const std::lock_guard lock(recorder_.mutex_);
  recorder_.last_call_ = now;
  const auto track = recorder_.find(collective_);
  if (!track) return;
  if (std::uncaught_exceptions() > exceptions_) {
    track->gave_up = now;
  } else {
    track->awaited.clear();
  }
}

std::string FlightRecorder::json() const {
  std::vector<Entry> entries;
  entries.reserve(entries_.size());
  std::unique_lock lock(mutex_);
  const Seconds now = transport_.now();
  const Seconds last_call = last_call_;
  const std::string group = group_;
  std::map<std::uint32_t, Track> tracks;
  for (const auto& [id, track] : tracks_) tracks.emplace(id, *track);
  const std::uint64_t recorded = recorded_;
  for (std::uint64_t i = recorded - std::min<std::uint64_t>(recorded, entries_.size()); i < recorded; ++i) {
    entries.push_back(entries_[i % entries_.size()]);
  }
  lock.unlock();
  std::string text = "{\"rank\":" + std::to_string(transport_.rank()) +
                     ",\"size\":" + std::to_string(transport_.size()) + ",\"group\":" + json_string(group) +
                     ",\"clock_s\":" + pyc::json_of(now);
  if (last_call >= 0) text += ",\"since_call_s\":" + pyc::json_of(now - last_call);
  text += ",\"collectives\":" + json_list(tracks, [&](const auto& item) { return json_of(item.second, now); });
  text += ",\"recorded_rounds\":" + std::to_string(recorded);
  text += ",\"rounds\":" + json_list(entries, [&](const Entry& entry) {
            const auto found = tracks.find(entry.collective);
            return json_of(entry, found == tracks.end() ? std::string() : found->second.name);
          });
  return text + "}";
}

std::string FlightRecorder::json_of(const Track& track, Seconds now) {
  std::string text = "{\"collective\":" + std::to_string(track.collective) + ",\"name\":" + json_string(track.name) +
                     ",\"state\":\"" +
                     (track.ended  ? "ended"
                      : track.left ? "closed"
                                   : "open") +
                     "\",\"completed_rounds\":" + std::to_string(track.completed);
  if (!track.awaited.empty()) {
    const bool gave_up = track.gave_up >= 0;
    text += ",\"wait\":{\"for\":" + json_string(track.awaited);
    if (track.awaited_round != kNoRound) text += ",\"round\":" + std::to_string(track.awaited_round);
    text += ",\"waited_s\":" + pyc::json_of((gave_up ? track.gave_up : now) - track.since) +
            ",\"gave_up\":" + (gave_up ? "true}" : "false}");
  }
  return text + "}";
}

std::string FlightRecorder::json_of(const Entry& entry, const std::string& name) const {
  std::string text = "{\"collective\":" + std::to_string(entry.collective) + ",\"name\":" + json_string(name) +
                     ",\"round\":" + std::to_string(entry.round) + ",\"state\":\"" +
                     kStates[static_cast<std::size_t>(entry.state)] + "\"";
  for (std::size_t s = 0; s < kStates.size(); ++s) {
    if (entry.times[s] >= 0) text += std::string(",\"") + kStates[s] + "_s\":" + pyc::json_of(entry.times[s]);
  }
  if (entry.initiator == kNoRank) return text + "}";
  text += ",\"initiator\":" + std::to_string(entry.initiator) +
          ",\"contributor_count\":" + std::to_string(entry.contributor_count);
  if (entry.members_known) {
    std::vector<Rank> ranks;
    for (Rank r = 0; r < transport_.size(); ++r) {
      if (entry.members[static_cast<std::size_t>(r) / 64] >> (r % 64) & 1) ranks.push_back(r);
    }
    text += ",\"contributors\":" + json_list(ranks, [](Rank r) { return std::to_string(r); });
  }
  return text + "}";
}

}  // namespace pyc
