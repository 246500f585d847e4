// The object behind a handle of pycollectives.h, with the arguments that its calls from C are checked against.
#pragma once

#include <pycollectives.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "core/types.h"
#include "engine/engine.h"

struct pyc_collective {
  enum class Kind : std::uint8_t { kAllreduce, kPreduce, kReduce, kNeighborhood, kPairwise, kServer };

  /// What every call uses.
  struct Common {
    std::string name;
    std::size_t count;
    pyc::DataType type;
    std::atomic_flag* in_use;          // shared with calls from Python; unused by averaging in pairs
    pyc::Seconds default_limit;        // negative: unlimited
    pyc::Engine::Interrupt interrupt;  // may throw pyc::Interrupted
  };

  pyc_collective(Kind of, Common with) : kind(of), common(std::move(with)) {}
  virtual ~pyc_collective() = default;
  pyc_collective(const pyc_collective&) = delete;
  pyc_collective& operator=(const pyc_collective&) = delete;

  const Kind kind;
  Common common;
};

/// The functions of pycollectives.h. Extension modules of Python get its address by a capsule.
extern "C" const pyc_api pyc_linked_api;
