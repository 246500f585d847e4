// Handles of partial allreduces, and their requests.
#pragma once

#include <memory>
#include <utility>

#include "c_api/contributor.h"
#include "c_api/handle.h"
#include "services/partial_allreduce/partial_allreduce.h"

namespace pyc {
struct AllreduceHandle;
}

struct pyc_request {
  std::shared_ptr<pyc::Call> call;
  pyc::AllreduceHandle* of;
};

namespace pyc {

struct AllreduceHandle final : pyc_collective {
  static constexpr Kind kKind = Kind::kAllreduce;
  AllreduceHandle(Common with, std::shared_ptr<PartialAllreduce> of, Contributor& by)
      : pyc_collective(kKind, std::move(with)), collective(std::move(of)), contributor(by) {}

  std::shared_ptr<PartialAllreduce> collective;
  Contributor& contributor;
  std::unique_ptr<pyc_request> spare;  // of a call that is done; guarded by `common.in_use`
};

}  // namespace pyc
