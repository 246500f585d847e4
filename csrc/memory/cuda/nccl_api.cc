#include "memory/cuda/nccl_api.h"

#include <mutex>

#include "memory/cuda/library.h"

namespace pyc::cuda {
namespace {

constexpr int kOldest = 21400;  // has communicators that do not block

}  // namespace

NcclFinding load_nccl(const char* library, NcclApi& api) {
  std::string reason;
  void* const handle = open_library(library, reason);
  if (handle == nullptr) return {nullptr, "no NCCL: " + reason};
  if (find_function(handle, "ncclGetVersion", api.ncclGetVersion)) {
    if (const NcclFinding found = new_enough(api); found.nccl == nullptr) return found;
  }
#define PYC_FIND(name, result, parameters) \
  if (!find_function(handle, #name, api.name)) return {nullptr, std::string("the NCCL ") + library + " has no " #name};
  PYC_NCCL_FUNCTIONS(PYC_FIND)
#undef PYC_FIND
#define PYC_FIND(name, result, parameters) find_function(handle, #name, api.name);
  PYC_OPTIONAL_NCCL_FUNCTIONS(PYC_FIND)
#undef PYC_FIND
  return {&api, ""};
}

NcclFinding new_enough(const NcclApi& api) {
  const int version = version_of(api);
  if (version >= kOldest) return {&api, ""};
  return {nullptr, "NCCL " + text_of_nccl_version(version) + " is too old: expected NCCL 2.14 or later"};
}

NcclFinding system_nccl() {
  static std::mutex mutex;
  static NcclApi api;
  static NcclFinding finding;
  const std::lock_guard lock(mutex);
  if (finding.nccl == nullptr) finding = load_nccl("libnccl.so.2", api);
  return finding;
}

int version_of(const NcclApi& nccl) {
  int version = 0;
  nccl.ncclGetVersion(&version);  // fails only without a place for it
  return version;
}

std::string text_of_nccl_version(int version) {
  const int major_unit = version < 10000 ? 1000 : 10000;  // up to NCCL 2.8: 2804
  return std::to_string(version / major_unit) + "." + std::to_string(version % major_unit / 100) + "." +
         std::to_string(version % 100);
}

std::string text_of(const NcclApi& nccl, ncclResult_t error) {
  std::string text = nccl.ncclGetErrorString(error);
  const char* const last = nccl.ncclGetLastError != nullptr ? nccl.ncclGetLastError(nullptr) : nullptr;
  if (last != nullptr && *last != '\0') text += std::string(": ") + last;
  return text;
}

}  // namespace pyc::cuda
