// The engine's interface to a collective. The holder of the engine's progress lock makes all calls.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "core/types.h"
#include "transport/transport.h"

namespace pyc {

class Collective {
 public:
  virtual ~Collective() = default;

  /// If false, the engine makes no pass, and its lock is free for calls with a time limit.
  virtual bool can_advance() { return true; }

  /// Handles the application's new calls and the passage of time. Returns whether anything moved.
  virtual bool advance() = 0;

  virtual void on_message(Rank from, ConstBytes message) = 0;

  /// A round is under way here, so the next event is near.
  virtual bool busy() const = 0;

  /// Whether something may move without a call of the application, so that the engine must be driven. Active messages
  /// arrive in any case, with a delay.
  virtual bool in_background() const { return true; }

  /// The latest time for the next `advance`; kNever if only an event can move the collective.
  static constexpr Seconds kNever = 1e300;
  virtual Seconds deadline() const = 0;

  /// Every rank has closed it and nothing of it is in flight, so it can be forgotten.
  virtual bool finished() const = 0;

  virtual const std::string& name() const = 0;

  /// The application is gone: leaves, and discards pending data.
  virtual void abort() = 0;

  /// Ranks that have not closed it, as far as known here.
  virtual std::vector<Rank> not_closed() const = 0;

  /// The engine has failed: passes the error on to ranks that learn of it by other means than messages.
  virtual void on_engine_failure(const std::exception_ptr&) {}

  /// Throws RankFailedError with the dead ranks, if they can be seen without a message.
  virtual void name_the_dead() const {}

  /// Whether a rank of this node is known to wait in a call of the collective.
  virtual bool has_waiting(Rank rank) const = 0;
};

}  // namespace pyc
