// Beside captures: while any thread captures a stream into a CUDA graph, the driver by default forbids all other
// threads calls such as cuEventQuery and cuMemAlloc, and a call that it forbids breaks that capture.
#pragma once

#include "memory/cuda/driver_api.h"

namespace pyc::cuda {

/// While it lives, the calling thread may call the driver, and breaks no capture. It works on streams that are not
/// captured.
class BesideCaptures {
 public:
  explicit BesideCaptures(const DriverApi& driver) : driver_(driver) { exchange(); }
  ~BesideCaptures() { exchange(); }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  void exchange() { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }

  const DriverApi& driver_;
  int mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // then the thread's own
};

}  // namespace pyc::cuda
