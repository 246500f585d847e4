// The source of a rank's groups: a rule or a generator. All calls are under the engine's progress lock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/types.h"
#include "services/partial_reduce/failure_reports.h"
#include "transport/transport.h"

namespace pyc {

/// A group that this rank may perform now.
struct Turn {
  std::uint64_t sequence = 0;    ///< the same on all members
  std::vector<Rank> members;     ///< ascending
  std::int64_t newest_step = 0;  ///< largest step known when the group started; the same on all members
  std::int32_t conflicts = 0;    ///< earlier groups that it waited for when it was generated
  bool answers = true;           ///< whether it answers this rank's last or next request
};

class GroupSource {
 public:
  virtual ~GroupSource() = default;

  /// `group`: the members by the rule; empty with a generator.
  virtual void request(std::int64_t step, const std::vector<Rank>& group) = 0;
  /// This rank's next group if it has started, or null. Valid until `performed` or a message.
  virtual const Turn* next() const = 0;
  virtual void performed() = 0;
  /// This rank makes no further request. Not while one is open.
  virtual void leave() = 0;
  virtual void deliver(Rank from, ConstBytes message) = 0;

  /// No rank will have another group.
  virtual bool finished() const = 0;
  virtual std::vector<Rank> not_left() const = 0;

  virtual void report_failure(const std::string& text) = 0;
  /// The first device failure that another rank has reported.
  const std::optional<std::string>& failure() const { return failures_.first(); }

  // For stalls: `inquire` asks; `explanation` is nullopt until an answer arrives; `silence` is the text without one.
  virtual void inquire() = 0;
  virtual std::optional<std::string> explanation() const = 0;
  virtual std::string silence() const = 0;

 protected:
  FailureReports failures_;
};

}  // namespace pyc
