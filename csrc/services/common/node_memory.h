// Memory that the ranks of each node share, agreed on by all ranks: there is either all of it or none.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "core/nodes.h"
#include "engine/engine.h"
#include "node/shared_memory.h"

namespace pyc {

/// Collective. The lowest rank of each node makes `bytes` of memory, which `prepare` is given there before any other
/// rank of the node, and then there too. Where every rank is a node of its own, it is memory that nobody can open. What
/// `prepare` throws on one rank is a std::runtime_error on all. `what`: for messages. StallError as `Engine::compare`.
void share_memory(Engine& engine, const Nodes& nodes, std::size_t bytes, const std::string& what,
                  const std::function<void(const std::shared_ptr<SharedMemory>&)>& prepare, Seconds timeout,
                  const Engine::Interrupt& interrupt);

/// Collective. Runs `part` on every rank; what it throws on one is a std::runtime_error on all, which names that rank.
void attempt_together(Engine& engine, const std::string& what, const std::function<void()>& part, Seconds timeout,
                      const Engine::Interrupt& interrupt);

}  // namespace pyc
