// Communicators of NCCL. Joining and reductions may go on after the call, and a poll says when they are queued.
#pragma once

#include <memory>

#include "memory/communicator.h"
#include "memory/cuda/context.h"
#include "memory/cuda/nccl_api.h"

namespace pyc::cuda {

/// For members on the device of that context; uses both while it, or what it gives, lives.
std::unique_ptr<CommunicatorLibrary> make_communicator_library(const NcclApi& nccl, const Context& context);

}  // namespace pyc::cuda
