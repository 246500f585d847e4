// The policies, with one file for each.
//
// clang-format off
// | policy      | an update is                                                 | a worker waits                    |
// |-------------|--------------------------------------------------------------|-----------------------------------|
// | bsp         | the mean of one gradient of each worker                      | for all others, after each push   |
// | asp, EAMSGD | each gradient                                                | never                             |
// | ssp         | each gradient                                                | if it is more than s pushes ahead |
// | dssp        | each gradient                                                | ... more than a threshold lo..hi  |
// | elastic_bsp | each gradient                                                | for all, at predicted barriers    |
// | ringmaster  | each gradient of a delay below R                             | never                             |
// | rennala     | the mean of S gradients of the newest weights                | never                             |
// | ringleader  | the mean over workers of the mean of each one's gradients    | never                             |
// | rescaled    | each gradient, weighted by how long its worker takes         | never                             |
// | mindflayer  | the mean of the gradients of a number of trials per worker   | for all others, after its trials  |
// clang-format on
#pragma once

#include <memory>

#include "services/parameter_server/policies/policy.h"

namespace pyc::server {

using MadePolicy = std::unique_ptr<const Policy>;

MadePolicy make_bsp(const SyncOptions& options);
MadePolicy make_asp(const SyncOptions& options);
MadePolicy make_ssp(const SyncOptions& options);
MadePolicy make_dssp(const SyncOptions& options);
MadePolicy make_elastic_bsp(const SyncOptions& options);
MadePolicy make_ringmaster(const SyncOptions& options);
MadePolicy make_rennala(const SyncOptions& options);
MadePolicy make_ringleader(const SyncOptions& options);
MadePolicy make_rescaled(const SyncOptions& options);
/// `trials` and `allotted` have an element for each worker, or one for all.
MadePolicy make_mindflayer(const SyncOptions& options);

}  // namespace pyc::server
