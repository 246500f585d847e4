// While a thread captures a stream into a CUDA graph, the driver by default forbids all other threads calls such as
// cuEventQuery and cuMemAlloc, and a forbidden call breaks the capture.
#pragma once

#include "memory/cuda/driver_api.h"

namespace pyc::cuda {

/// While it lives, the calling thread may call the driver without breaking a capture. Not for captured streams.
class BesideCaptures {
 public:
  explicit BesideCaptures(const DriverApi& driver) : driver_(driver) { exchange(); }
  ~BesideCaptures() { exchange(); }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  void exchange() { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }

  const DriverApi& driver_;
  int mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // after the exchange, the thread's own mode
};

}  // namespace pyc::cuda
