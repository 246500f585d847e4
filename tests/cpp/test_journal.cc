// An update of the weights whose rank dies in the middle of a block, and which a survivor completes.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "core/checked.h"
#include "cpp_test.h"
#include "memory/memory.h"
#include "services/parameter_server/shard.h"

namespace pyc::server {
namespace {

constexpr std::size_t kCount = 3 * Shard::kBlockBytes / sizeof(double) - 5;  // the last block is short
constexpr Worker kWorkers = 3;

Options options(Rule rule, double momentum = 0) {
  Options made;
  made.name = "weights";
  made.count = kCount;
  made.type = DataType::kFloat64;
  made.workers = {0, 1, 2};
  made.servers = {0};
  made.update = {.rule = rule, .rate = 1, .momentum = momentum, .alpha = 0.5};
  made.recoverable = true;
  return made;
}

/// The memory of a shard, which two processes see.
struct Shared {
  explicit Shared(Options of)
      : made(std::move(of)),
        layout(made),
        bytes(static_cast<std::byte*>(std::aligned_alloc(4096, in_pages(Shard::bytes(layout, 0)))), &std::free) {
    std::memset(bytes.get(), 0, Shard::bytes(layout, 0));
  }
  Shard shard(bool first) { return {host_memory(), layout, 0, bytes.get(), first}; }

  const Options made;
  const Layout layout;
  std::unique_ptr<std::byte, decltype(&std::free)> bytes;
};

/// Gradients of the workers: w + 1 in all elements.
void fill(Shard& shard) {
  const std::vector<double> zeros(kCount, 10.0);
  shard.start(reinterpret_cast<const std::byte*>(zeros.data()));
  for (Worker w = 0; w < kWorkers; ++w) {
    std::fill_n(reinterpret_cast<double*>(shard.accumulator(w)), kCount, static_cast<double>(w + 1));
  }
}

std::vector<double> weights(const Shard& shard) {
  std::vector<double> all(shard.arrays() * kCount);
  shard.copy_arrays(reinterpret_cast<std::byte*>(all.data()));
  return all;
}

struct Begun {
  Step step;
  std::vector<Term> terms;
  Ticket ticket;
};

/// An update with a mean of all gradients.
Begun begin(Shard& shard) {
  Begun begun;
  begun.step.update = 1;
  for (Worker w = 0; w < kWorkers; ++w) {
    begun.step.parts.push_back({.worker = w, .weight = 1.0, .newest = 7});
    begun.terms.push_back({shard.accumulator(w), 1.0});
  }
  begun.ticket = *shard.pipeline().enter(true, 0);
  return begun;
}

/// Makes the update up to the middle of `block`, and dies.
void die_in(Shard& shard, const Begun& begun, std::size_t block, std::optional<Worker> own) {
  shard.write_journal(0, begun.ticket, begun.step.update, begun.step.parts, begun.terms, own);
  for (std::size_t b = 0; b <= block; ++b) {
    shard.save(begun.ticket.number, b);
    if (b == block) break;
    shard.update(b, begun.terms, 1);
    shard.pipeline().passed(begun.ticket, b);
  }
  const std::vector<double> before = weights(shard);
  shard.update(block, begun.terms, 1);
  const std::size_t first = shard.first(block), half = shard.length(block) / 2;
  std::memcpy(shard.weights() + (first + half) * sizeof(double), before.data() + first + half,
              (shard.length(block) - half) * sizeof(double));
}

}  // namespace

PYC_TEST(a_survivor_completes_an_update) {
  for (const double momentum : {0.0, 0.5}) {
    for (const std::size_t block : {0, 1, 2}) {
      Shared expected(options(Rule::kSgd, momentum)), shared(options(Rule::kSgd, momentum));
      Shard whole = expected.shard(true), dying = shared.shard(true), survivor = shared.shard(false);
      for (Shard* shard : {&whole, &dying}) fill(*shard);
      const Begun all = begin(whole), begun = begin(dying);
      for (std::size_t b = 0; b < 3; ++b) whole.update(b, all.terms, 1);
      die_in(dying, begun, block, {});
      PYC_CHECK(survivor.has_journal(begun.ticket.number));
      PYC_CHECK(!survivor.has_journal(begun.ticket.number + 1));
      PYC_CHECK(survivor.complete_update(1, 5, {}));
      PYC_CHECK(!survivor.complete_update(1, 5, {}));
      PYC_CHECK(weights(survivor) == weights(whole));
      PYC_CHECK(!survivor.pipeline().slowest());
      for (Worker w = 0; w < kWorkers; ++w) PYC_CHECK(survivor.slot(w).used.load() == 7);
    }
  }
}

PYC_TEST(one_survivor_completes_an_update) {
  Shared shared(options(Rule::kSgd));
  Shard dying = shared.shard(true), survivor = shared.shard(false), another = shared.shard(false);
  fill(dying);
  die_in(dying, begin(dying), 1, {});
  PYC_CHECK(survivor.complete_update(1, 5, {}));
  PYC_CHECK(!another.complete_update(1, 6, {}));
  PYC_CHECK(weights(another).front() == 10 - 6);
  PYC_CHECK(weights(another).back() == 10 - 6);
}

PYC_TEST(a_gradient_in_the_memory_of_the_dead_is_in_a_part_of_the_weights) {
  Shared shared(options(Rule::kSgd));
  Shard dying = shared.shard(true), survivor = shared.shard(false);
  fill(dying);
  die_in(dying, begin(dying), 1, Worker{2});
  PYC_CHECK(survivor.complete_update(1, 5, {}));
  const std::vector<double> all = weights(survivor);
  for (std::size_t i = 0; i < kCount; ++i) PYC_CHECK(all[i] == (i < survivor.first(1) ? 10 - 6 : 10 - 3));
  PYC_CHECK(survivor.slot(2).used.load() == 0);
}

PYC_TEST(a_survivor_waits_for_earlier_work_before_it_completes_an_update) {
  Shared shared(options(Rule::kSgd));
  Shard dying = shared.shard(true), survivor = shared.shard(false);
  fill(dying);
  const Ticket earlier = *dying.pipeline().enter(true, 1);
  const Begun begun = begin(dying);
  dying.write_journal(0, begun.ticket, 1, begun.step.parts, begun.terms, {});
  PYC_CHECK(!survivor.complete_update(begun.ticket.number, 5, {}));
  dying.pipeline().passed(earlier, 0);
  PYC_CHECK(survivor.complete_update(begun.ticket.number, 5, {}));
  PYC_CHECK(weights(survivor).front() == 10 - 6);
  PYC_CHECK(weights(survivor).back() == 10);
  dying.pipeline().passed_all(earlier);
  PYC_CHECK(survivor.complete_update(begun.ticket.number, 5, {}));
  PYC_CHECK(weights(survivor).back() == 10 - 6);
}

PYC_TEST(another_survivor_takes_over_from_one_that_has_died) {
  Shared shared(options(Rule::kSgd));
  Shard dying = shared.shard(true), survivor = shared.shard(false), another = shared.shard(false);
  fill(dying);
  const Ticket earlier = *dying.pipeline().enter(true, 1);
  const Begun begun = begin(dying);
  dying.write_journal(0, begun.ticket, 1, begun.step.parts, begun.terms, {});
  dying.pipeline().passed(earlier, 1);
  PYC_CHECK(survivor.complete_update(begun.ticket.number, 5, {}));  // two blocks
  survivor.save(begun.ticket.number, 2);
  survivor.update(2, begun.terms, 1);
  dying.pipeline().passed_all(earlier);
  PYC_CHECK(!another.complete_update(begun.ticket.number, 6, {4}));
  PYC_CHECK(another.complete_update(begun.ticket.number, 6, {4, 5}));
  PYC_CHECK(weights(another).front() == 10 - 6);
  PYC_CHECK(weights(another).back() == 10 - 6);
}

PYC_TEST(a_journal_of_each_ticket_in_direct_mode) {
  Options direct = options(Rule::kSgd);
  direct.direct = true;
  Shared shared(direct);
  Shard dying = shared.shard(true), survivor = shared.shard(false);
  fill(dying);
  const Begun first = begin(dying), second = begin(dying);
  for (const Begun* begun : {&first, &second}) {
    dying.write_journal(1, begun->ticket, 1, begun->step.parts, begun->terms, Worker{1});
  }
  dying.save(first.ticket.number, 0);
  dying.update(0, first.terms, 1);
  PYC_CHECK(!survivor.complete_update(second.ticket.number, 5, {}));
  PYC_CHECK(survivor.complete_update(first.ticket.number, 5, {}));
  PYC_CHECK(survivor.complete_update(second.ticket.number, 5, {}));
  const std::vector<double> all = weights(survivor);
  PYC_CHECK(all.front() == 10 - 2 * 4 && all.back() == 10 - 2 * 4);  // without the gradient of worker 1
}

PYC_TEST(a_survivor_completes_an_elastic_average) {
  Shared expected(options(Rule::kElastic)), shared(options(Rule::kElastic));
  Shard whole = expected.shard(true), dying = shared.shard(true), survivor = shared.shard(false);
  for (Shard* shard : {&whole, &dying}) {
    fill(*shard);
    std::fill_n(reinterpret_cast<double*>(shard->incoming(1)), kCount, 4.0);
  }
  for (std::size_t b = 0; b < 3; ++b) whole.average(b, whole.incoming(1));
  const Ticket ticket = *dying.pipeline().enter(true, 0);
  dying.write_journal(0, ticket, 1, {{.worker = 1, .weight = 1, .newest = 3}}, {{dying.incoming(1), 1}}, {});
  dying.save(ticket.number, 0);
  dying.average(0, dying.incoming(1));
  dying.pipeline().passed(ticket, 0);
  dying.save(ticket.number, 1);
  dying.average(1, dying.incoming(1));
  PYC_CHECK(survivor.complete_update(1, 5, {}));
  PYC_CHECK(weights(survivor) == weights(whole));
  PYC_CHECK(std::memcmp(survivor.incoming(1), whole.incoming(1), kCount * sizeof(double)) == 0);
}

PYC_TEST(gathered_gradients_of_the_dead_are_discarded_from_a_block_on) {
  Shared shared(options(Rule::kSgd));
  Shard shard = shared.shard(true);
  fill(shard);
  shard.clear_accumulators(1, 2);
  const auto* const values = reinterpret_cast<const double*>(shard.accumulator(1));
  for (std::size_t i = 0; i < kCount; ++i) PYC_CHECK(values[i] == (i < shard.first(2) ? 2 : 0));
  PYC_CHECK(reinterpret_cast<const double*>(shard.accumulator(0))[kCount - 1] == 1);
  shard.clear_accumulators(0, 3);  // all blocks are done
  PYC_CHECK(reinterpret_cast<const double*>(shard.accumulator(0))[kCount - 1] == 1);
}

}  // namespace pyc::server
