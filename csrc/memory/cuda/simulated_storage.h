// Tests only: memory of a simulated device that other processes of the machine can map, as with CUDA IPC.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace pyc::cuda {

class SimulatedStorage {
 public:
  static constexpr std::size_t kMostMappings = 64;

  struct Handle {
    std::array<char, 16> mark;
    std::int32_t process;
    std::int32_t file;
    std::uint64_t id;
  };

  static std::shared_ptr<SimulatedStorage> create(std::size_t bytes);
  /// Null if there is no such memory anymore.
  static std::shared_ptr<SimulatedStorage> open(const Handle& handle);
  ~SimulatedStorage();
  SimulatedStorage(const SimulatedStorage&) = delete;
  SimulatedStorage& operator=(const SimulatedStorage&) = delete;

  std::byte* data() const;
  std::size_t bytes() const { return bytes_; }
  Handle handle() const;

  /// For the process that created it. Afterwards no process may use it.
  void free() { head_->is_free.store(true); }
  bool is_free() const { return head_->is_free.load(); }
  /// Mappings of processes that still run.
  std::size_t mappings() const;

 private:
  struct Head {
    std::uint64_t id;
    std::atomic<bool> is_free;
    std::array<std::atomic<std::int32_t>, kMostMappings> mapped_by;  // process numbers; 0 if unused
  };

  SimulatedStorage(int file, std::size_t bytes);

  int file_;  // -1 for a mapping
  std::size_t bytes_;
  Head* head_;
  std::atomic<std::int32_t>* mapped_ = nullptr;  // the entry of this mapping
};

}  // namespace pyc::cuda
