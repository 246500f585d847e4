// Making a device board: its control, and who has which arena mapped, agreed on by all ranks.
#pragma once

#include <memory>
#include <string>

#include "core/nodes.h"
#include "engine/engine.h"
#include "services/common/device_board.h"

namespace pyc {

/// Collective. A board for each node, attached. What fails on one rank is a std::runtime_error on all. `what`: for
/// messages. StallError as `Engine::compare`.
std::unique_ptr<DeviceBoard> make_device_board(Engine& engine, const Nodes& nodes, Executor& executor,
                                               const DeviceBoard::Shape& shape, const std::string& what,
                                               Seconds timeout, const Engine::Interrupt& interrupt);

}  // namespace pyc
