// The executor of a CUDA device: memory of the device, work queued on its streams, nothing that waits.
#pragma once

#include <cstdint>
#include <memory>

#include "memory/cuda/driver.h"
#include "memory/cuda/nccl_api.h"
#include "memory/executor.h"

namespace pyc::cuda {

/// Makes the primary context of the device, which the caller's libraries use too, and loads the kernels into it.
/// DriverError if that fails. `image`: fat_binary(), or what a simulated driver takes for one. `find_nccl`: asked when
/// communicators are.
std::unique_ptr<Executor> make_executor(const DriverApi& driver, int ordinal, const void* image,
                                        NcclSource find_nccl = system_nccl);

/// That of a stream of such an executor, for another library's work on it.
CUstream handle_of(Stream& stream);

}  // namespace pyc::cuda
