#include "services/common/device_board_creation.h"

#include <stdexcept>

#include "core/error.h"
#include "services/common/node_memory.h"

namespace pyc {

std::unique_ptr<DeviceBoard> make_device_board(Engine& engine, const Nodes& nodes, Executor& executor,
                                               const DeviceBoard::Shape& shape, const std::string& what,
                                               Seconds timeout, const Engine::Interrupt& interrupt) {
  const std::size_t local = nodes.local_rank_of(engine.rank());
  std::unique_ptr<DeviceBoard> board;
  const auto make = [&](const std::shared_ptr<SharedMemory>& control) {
    if (local == 0) DeviceBoard::prepare(control->data());
    board = std::make_unique<DeviceBoard>(executor, shape, nodes.neighbours(engine.rank()), local,
                                          std::shared_ptr<std::byte>(control, control->data()));
  };
  share_memory(engine, nodes, DeviceBoard::bytes(), what, make, timeout, interrupt);
  try {
    attempt_together(engine, what, [&] { board->attach(); }, timeout, interrupt);
  } catch (const StallError&) {
    throw;
  } catch (const std::runtime_error&) {  // on all ranks: whose arenas nobody may have mapped when they are freed
    attempt_together(engine, what, [&] { board->close(); }, timeout, interrupt);
    throw;
  }
  return board;
}

}  // namespace pyc
