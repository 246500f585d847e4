// Ringleader ASGD (Maranjyan, Richtárik 2025, arXiv 2509.22860), for workers with different data.
//
// Idea: an update uses gradients of every worker, with equal weights, however fast each is. A table keeps the sum and
// the number of each worker's gradients, so no worker waits and no gradient is discarded.
//
// Rule: training runs in rounds of two phases. An update is the mean over workers of the mean of each worker's
// gradients in the table.
//   1  Gradients go into the table until it has one of each worker. The first update follows the last of these.
//   2  The next gradient of each other worker goes into the table, and is followed by an update by the whole table.
//      Gradients of workers that have had their update in this round go into a second table, which begins the next one.
// With n workers, a round has at most n updates. A gradient is used in several updates of its round, and is at most
// 2n - 2 updates old.
//
// State: the server's phase. A row's `extra` is 1 while its update of the second phase is pending. No update waits for
// workers that have left; their gradients stay in the table until the round ends.
#include "services/parameter_server/policies/base.h"
#include "services/parameter_server/policies/policies.h"

namespace pyc::server {
namespace {

class Ringleader final : public PatientPolicy {
 public:
  using PatientPolicy::PatientPolicy;

  Verdict on_push(Table table, Worker worker, Version version, Seconds now) const override {
    if (is_from_before_return(table, worker, version)) return discarded();
    WorkerRow& row = table.workers[worker];
    if (is_second_phase(table) && row.extra == 0) {
      ++row.next;
      return {.next = true};
    }
    ++row.gathered;
    if (is_second_phase(table)) {
      row.extra = 0;
      return update(table, now);
    }
    if (!is_table_full(table)) return {};
    begin_second_phase(table);
    row.extra = 0;
    return update(table, now);
  }
  Verdict on_presence(Table table, Worker worker, Seconds now) const override {
    WorkerRow& row = table.workers[worker];
    row.extra = 0;
    note_presence(table, worker);
    if (is_present(row)) return {};
    if (is_second_phase(table)) return is_round_done(table) ? turn(table, {}, now) : Verdict{};
    if (gathered(table) == 0 || !is_table_full(table)) return {};
    begin_second_phase(table);
    return update(table, now);
  }
  bool may_go(Table, Worker) const override { return true; }
  bool is_awaited(Table table, Worker worker) const override {
    const WorkerRow& row = table.workers[worker];
    return is_present(row) && (is_second_phase(table) ? row.extra != 0 : row.gathered == 0);
  }
  bool has_next() const override { return true; }

 private:
  bool has_waiting(Table table) const override { return gathered(table) > 0; }

  static bool is_second_phase(Table table) { return table.server.phase != 0; }
  static bool is_table_full(Table table) {
    return all_present(table, [](const WorkerRow& row) { return row.gathered > 0; });
  }
  static bool is_round_done(Table table) {
    return all_present(table, [](const WorkerRow& row) { return row.extra == 0; });
  }
  static void begin_second_phase(Table table) {
    table.server.phase = 1;
    for (WorkerRow& row : table.workers) row.extra = is_present(row) ? 1 : 0;
  }

  static Verdict update(Table table, Seconds now) {
    weigh_means(table);
    return is_round_done(table) ? turn(table, {.update = true}, now) : Verdict{.update = true, .keep = true};
  }
  static Verdict turn(Table table, Verdict verdict, Seconds now) {
    table.server.phase = 0;
    ++table.server.superstep;
    table.server.begun = now;
    for (WorkerRow& row : table.workers) {
      row.gathered = row.next;
      row.next = 0;
    }
    verdict.turn = true;
    return verdict;
  }
};

}  // namespace

MadePolicy make_ringleader(const SyncOptions& options) { return std::make_unique<Ringleader>(options); }

}  // namespace pyc::server
