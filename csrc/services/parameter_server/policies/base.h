// What policies have in common: when a worker that others wait for is missing, and gradients that are used at once.
#pragma once

#include "services/parameter_server/policies/rows.h"

namespace pyc::server {

/// Workers are missing if nothing has come of them for `patience` times the longest interval that is known, and for
/// 1 s, while others wait for them. It is not a guess of the worker's own speed: it may be in its first iteration.
class PatientPolicy : public Policy {
 public:
  explicit PatientPolicy(const SyncOptions& options) : patience_(options.patience) {}

  Seconds deadline(Table table) const override;
  Worker missing(Table table, Seconds now) const override;

 protected:
  /// Whether somebody waits at all: a worker that is not let go, or an update.
  virtual bool has_waiting(Table table) const;
  /// kUnknown if none is known.
  virtual Seconds longest_interval(Table table) const;

 private:
  Seconds deadline_of(Table table, Worker worker, Seconds longest) const;

  const double patience_;
};

/// Each gradient is an update by itself, as in equation 5, unless it is from before an absence of its worker. What the
/// derived policies add is who waits. The weight is 1, as in plain SGD: with n workers there are n times as many
/// updates as in BSP, so the rate is chosen accordingly.
class ImmediatePolicy : public PatientPolicy {
 public:
  using PatientPolicy::PatientPolicy;

  Verdict on_push(Table table, Worker worker, Version version, Seconds now) const override {
    const bool is_old = is_from_before_return(table, worker, version);
    after_push(table, worker, now);
    return is_old ? discarded() : update_by(table, worker, 1);
  }
  Verdict on_presence(Table table, Worker worker, Seconds now) const override {
    note_presence(table, worker);
    after_presence(table, worker, now);
    return {};
  }

 protected:
  virtual void after_push(Table, Worker, Seconds) const {}
  virtual void after_presence(Table, Worker, Seconds) const {}
};

}  // namespace pyc::server
