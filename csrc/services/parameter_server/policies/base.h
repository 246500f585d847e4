// Base classes of policies: detection of missing workers, and immediate use of gradients.
#pragma once

#include "services/parameter_server/policies/rows.h"

namespace pyc::server {

/// An awaited worker is missing after `patience` times the longest known interval of all workers, and at least 1 s,
/// without a push. Its own interval is not used, because the worker may be in its first iteration.
class PatientPolicy : public Policy {
 public:
  explicit PatientPolicy(const SyncOptions& options) : patience_(options.patience) {}

  Seconds deadline(Table table) const override;
  Worker missing(Table table, Seconds now) const override;

 protected:
  /// Whether anything waits: a worker for its release, or gradients for an update.
  virtual bool has_waiting(Table table) const;
  virtual Seconds longest_interval(Table table) const;

 private:
  Seconds deadline_of(Table table, Worker worker, Seconds longest) const;

  const double patience_;
};

/// Each gradient is an update by itself (equation 5), unless it is older than an absence of its worker. Derived
/// policies define who waits. The weight is 1 as in plain SGD: n workers make n times as many updates as in BSP, and
/// the learning rate must allow for that.
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
