// Memory that the ranks of each node share, agreed on by all ranks: there is either all of it or none.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
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

/// Collective. Runs `part` on every rank. Why it failed on the first one on which it did, which is named: the same text
/// on all ranks; empty: on none.
std::string try_together(Engine& engine, const std::string& what, const std::function<void()>& part, Seconds timeout,
                         const Engine::Interrupt& interrupt);
/// ... which is a std::runtime_error on all.
void attempt_together(Engine& engine, const std::string& what, const std::function<void()>& part, Seconds timeout,
                      const Engine::Interrupt& interrupt);

/// Collective. Has all ranks map the arenas of their nodes' others (arena_seats.h). If one cannot, all end what they
/// have mapped, before anything is freed: std::runtime_error on all.
template <class Arenas>
void map_together(Engine& engine, const std::string& what, Arenas& arenas, Seconds timeout,
                  const Engine::Interrupt& interrupt) {
  const std::string refusal = try_together(engine, what, [&] { arenas.map_others(); }, timeout, interrupt);
  if (refusal.empty()) return;
  attempt_together(engine, what, [&] { arenas.release(); }, timeout, interrupt);
  throw std::runtime_error(refusal);
}

}  // namespace pyc
