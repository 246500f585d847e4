// A ledger that a rank has received from the server.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "services/parameter_server/ledger.h"

namespace pyc::server {

class LedgerCopy {
 public:
  /// `memory`: of the other ledger. `options` outlive this object.
  LedgerCopy(const Options& options, const std::vector<std::byte>& memory)
      : lines_(std::make_unique<std::byte[]>(memory.size() + kLine)), ledger_(options, aligned(memory), false, 0) {}

  Ledger& operator*() { return ledger_; }
  Ledger* operator->() { return &ledger_; }

 private:
  static constexpr std::size_t kLine = 64;

  std::byte* aligned(const std::vector<std::byte>& memory) {
    void* start = lines_.get();
    std::size_t room = memory.size() + kLine;
    std::align(kLine, memory.size(), start, room);
    std::memcpy(start, memory.data(), memory.size());
    return static_cast<std::byte*>(start);
  }

  std::unique_ptr<std::byte[]> lines_;
  Ledger ledger_;
};

}  // namespace pyc::server
