// What the engine knows of a collective: something that wants to be advanced, gets active messages, and ends one day.
// All calls come from the holder of the engine's progress lock.
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

  /// Whether it can: the engine makes no pass meanwhile, and its lock is free for calls with a limit.
  virtual bool can_advance() { return true; }

  /// Takes in what the application and the clock have done since. Returns whether anything moved.
  virtual bool advance() = 0;

  virtual void on_message(Rank from, ConstBytes message) = 0;

  /// A round is under way here, so that the next event is near.
  virtual bool busy() const = 0;

  /// Something may move while the application does not call: the engine must be driven. Active messages arrive anyway,
  /// if not at once.
  virtual bool in_background() const { return true; }

  /// When `advance` must be called at the latest; kNever if only an event can move it.
  static constexpr Seconds kNever = 1e300;
  virtual Seconds deadline() const = 0;

  /// Every rank has closed it and nothing of it is in flight: it can be forgotten.
  virtual bool finished() const = 0;

  virtual const std::string& name() const = 0;

  /// The application is gone: leave for good and throw away what waits.
  virtual void abort() = 0;

  /// Ranks that have not closed it, as far as known here.
  virtual std::vector<Rank> not_closed() const = 0;

  /// The engine cannot go on: passes it on to those who need it by other ways than messages.
  virtual void on_engine_failure(const std::exception_ptr&) {}

  /// RankFailedError that names who died, as far as it can be seen without a message.
  virtual void name_the_dead() const {}

  /// Whether a rank of this node is known to wait in a call of it.
  virtual bool has_waiting(Rank rank) const = 0;
};

}  // namespace pyc
