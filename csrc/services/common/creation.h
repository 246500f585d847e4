// Enrollment of a collective in the engine, after all ranks have agreed on it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "engine/engine.h"

namespace pyc {

/// Enrolls `made` as the next collective. `give(id)` runs before its first message, under the progress lock (see
/// Engine::enroll). The result keeps the engine alive.
template <class Kind, class Give>
std::shared_ptr<Kind> enroll(std::shared_ptr<Engine> engine, std::shared_ptr<Kind> made, Give give) {
  Engine& e = *engine;
  e.exclusively([&] {
    const std::uint32_t id = e.claim_id();
    e.enroll(id, made, [&] { give(id); });
  });
  e.wake();
  return with_engine(std::move(engine), std::move(made));
}

}  // namespace pyc
