// Memory that the ranks of each node share. Either every node gets its memory or none does.
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

/// Collective. The lowest rank of each node allocates `bytes` and runs `prepare` on them; then its other ranks open
/// them and run it too. If every rank is a node of its own, the memory is private. If `prepare` throws on one rank, all
/// ranks throw std::runtime_error with `what` in its text. Throws StallError like `Engine::compare`.
void share_memory(Engine& engine, const Nodes& nodes, std::size_t bytes, const std::string& what,
                  const std::function<void(const std::shared_ptr<SharedMemory>&)>& prepare, Seconds timeout,
                  const Engine::Interrupt& interrupt);

/// Collective. Runs `part` on every rank. Returns the lowest rank on which it failed, with the error, or an empty text;
/// the same on all ranks.
std::string try_together(Engine& engine, const std::string& what, const std::function<void()>& part, Seconds timeout,
                         const Engine::Interrupt& interrupt);
/// Like `try_together`, but throws that text as a std::runtime_error on all ranks.
void attempt_together(Engine& engine, const std::string& what, const std::function<void()>& part, Seconds timeout,
                      const Engine::Interrupt& interrupt);

/// Collective. Every rank maps the arenas of its node's other ranks (arena_seats.h). If one fails, all ranks end their
/// mappings before any arena is freed, and throw std::runtime_error.
template <class Arenas>
void map_together(Engine& engine, const std::string& what, Arenas& arenas, Seconds timeout,
                  const Engine::Interrupt& interrupt) {
  const std::string refusal = try_together(engine, what, [&] { arenas.map_others(); }, timeout, interrupt);
  if (refusal.empty()) return;
  attempt_together(engine, what, [&] { arenas.release(); }, timeout, interrupt);
  throw std::runtime_error(refusal);
}

}  // namespace pyc
