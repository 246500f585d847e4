// Communicators of all ranks' devices (memory/communicator.h): whether they can be, and how ranks come to one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "memory/executor.h"

namespace pyc {

/// Collective. Why the ranks' devices cannot be joined, the same text on all ranks; empty: they can. `open` gives this
/// rank's; what it throws on one rank is a std::runtime_error on all. StallError as `Engine::compare`.
std::string why_no_communicator(Engine& engine, const std::function<std::shared_ptr<Executor>()>& open, Seconds timeout,
                                const Engine::Interrupt& interrupt);

/// Collective, where they can be: one of all ranks, in their order. What fails on one rank is a std::runtime_error on
/// all. `what`: for messages. StallError as `Engine::compare`.
std::unique_ptr<Communicator> join_all(Engine& engine, Executor& executor, const std::string& what, Seconds timeout,
                                       const Engine::Interrupt& interrupt);

}  // namespace pyc
