#include "diagnostics/trace.h"

#include <fstream>
#include <stdexcept>
#include <utility>

#include "diagnostics/json.h"

namespace pyc {
namespace {

/// At most the first `longest` bytes, cut before an incomplete UTF-8 character.
std::string cut(std::string_view text, std::size_t longest) {
  if (text.size() <= longest) return std::string(text);
  const auto is_inside = [&](std::size_t place) { return (static_cast<unsigned char>(text[place]) & 0xC0U) == 0x80U; };
  while (longest > 0 && is_inside(longest)) --longest;
  return std::string(text.substr(0, longest)) + "...";
}

}  // namespace

Trace::Trace(std::string path, Rank rank, Rank size, int communicator, std::string group, std::size_t most_events)
    : most_events_(most_events),
      path_(std::move(path)),
      process_name_("rank " + std::to_string(rank)),
      process_(rank + size * communicator),
      communicator_(communicator),
      group_(std::move(group)) {
  const std::string ending = ".json";
  if (path_.ends_with(ending)) path_.resize(path_.size() - ending.size());
  path_ += ".rank" + std::to_string(rank);
  if (communicator > 0) {
    path_ += ".communicator" + std::to_string(communicator);
    process_name_ += ", communicator " + std::to_string(communicator);
  }
  path_ += ending;
}

void Trace::begin(Cookie op, Seconds now) {
  const std::lock_guard lock(mutex_);
  begun_[op] = now;
}

void Trace::add(std::string_view name, Seconds begin, Seconds end, std::uint32_t collective, RoundNumber round) {
  const std::lock_guard lock(mutex_);
  keep({std::string(name), begin, end, collective, round, {}});
}

void Trace::add_wait(Seconds begin, Seconds end, std::uint32_t collective, RoundNumber round, std::string_view what) {
  const std::lock_guard lock(mutex_);
  keep({"wait", begin, end, collective, round, cut(what, kLongestText)});
}

void Trace::end(Cookie op, Seconds now, std::string_view name, std::uint32_t collective, RoundNumber round) {
  const std::lock_guard lock(mutex_);
  const auto begun = begun_.find(op);
  keep({std::string(name), begun == begun_.end() ? now : begun->second, now, collective, round, {}});
  if (begun != begun_.end()) begun_.erase(begun);
}

void Trace::keep(Event event) {
  if (events_.size() < most_events_) {
    events_.push_back(std::move(event));
  } else {
    ++left_out_;
  }
}

void Trace::write() const {
  const std::lock_guard lock(mutex_);
  std::ofstream out(path_);
  if (!out) throw std::runtime_error("PYC_TRACE: cannot write " + path_);
  out.precision(3);
  out << std::fixed << "{\"traceEvents\": [\n"
      << "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": " << process_ << ", \"args\": {\"name\": \""
      << process_name_ << "\"}}";
  if (left_out_ > 0) {
    out << ",\n{\"ph\": \"i\", \"s\": \"p\", \"name\": \"full: " << left_out_
        << " later events left out\", \"pid\": " << process_ << ", \"tid\": 0, \"ts\": " << events_.back().end * 1e6
        << "}";
  }
  for (const Event& e : events_) {
    out << ",\n{\"ph\": \"X\", \"name\": " << json_string(e.name) << ", \"pid\": " << process_
        << ", \"tid\": " << e.collective << ", \"ts\": " << e.begin * 1e6 << ", \"dur\": " << (e.end - e.begin) * 1e6
        << ", \"args\": {";
    if (e.round != kNoRound) out << "\"round\": " << e.round;
    if (!e.awaited.empty()) out << (e.round == kNoRound ? "" : ", ") << "\"for\": " << json_string(e.awaited);
    out << "}}";
  }
  out << "\n],\n\"otherData\": {\"communicator\": " << communicator_ << ", \"group\": " << json_string(group_)
      << "}}\n";
  out.close();
  if (!out) throw std::runtime_error("PYC_TRACE: cannot write all of " + path_);
}

}  // namespace pyc
