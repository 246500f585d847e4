#include "engine/transfer.h"

#include <utility>

#include "algorithms/neighbor_exchange.h"
#include "schedule/builder.h"

namespace pyc {

Transfer::Plan Transfer::plan(bool sends, std::size_t bytes) {
  ScheduleBuilder s(sends ? kGiver : kTaker, 2);
  const Slice values = s.buffer(bytes, "values");
  const OpId release = s.trigger("release");
  s.gate(release);
  neighbor_exchange(s, values);
  s.ungate();
  return {std::move(s).build(), values, release};
}

RunContext Transfer::context(Engine& engine, std::uint32_t collective) const {
  return {.schedule = plan_.schedule,
          .peers = peers_,
          .members = 1,
          .memory = host_memory(),
          .transport = engine.transport(),
          .open_transfers = engine.open_transfers(),
          .elements = {DataType::kUint8, DataType::kUint8},  // bytes, nothing is reduced
          .op = ReduceOp::kSum,
          .element_bytes = 1,
          .collective = collective,
          .track_members = false,
          .trace = engine.trace()};
}

Transfer::Transfer(Engine& engine, std::uint32_t collective, Rank peer, bool sends, std::size_t bytes)
    : sends_(sends),
      peers_(sends ? std::vector{engine.rank(), peer} : std::vector{peer, engine.rank()}),
      plan_(plan(sends, bytes)),
      run_(context(engine, collective), engine.reserve_run(), {plan_.values.buffer}, [](Run&, OpId) {}) {
  engine.set_run(run_);
}

void Transfer::start(std::uint64_t number, std::byte* values) {
  run_.arm(number);
  run_.bind(plan_.values.buffer, values);
  const bool has_values = sends_ && values != nullptr;
  run_.presence().assign(plan_.schedule.blocks_of(plan_.values), {.contributors = has_values ? 1U : 0U}, {});
  run_.fire(plan_.release);
  run_.pump();
}

}  // namespace pyc
