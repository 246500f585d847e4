// Memory that the processes of one node share: an anonymous file (memfd) that others open through its creator's /proc
// entry. It has no name, so nothing remains after the job. Its pages are freed with the last mapping, and no process
// waits for another to free it, unlike an MPI-3 shared window.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace pyc {

// Processes share atomics of these sizes. An atomic with a lock would be correct only within a process.
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::int32_t>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<double>::is_always_lock_free);

class SharedMemory {
 public:
  /// Zeroed, and backed by pages on first touch. Throws std::runtime_error with the reason of the system.
  static std::shared_ptr<SharedMemory> create(std::size_t bytes);

  /// For ranks that are threads of this process, without a file or a handle.
  static std::shared_ptr<SharedMemory> create_private(std::size_t bytes);

  /// Opens memory from `create` by its `handle`. In the process that created it, returns the same object.
  static std::shared_ptr<SharedMemory> open(const std::string& handle);

  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  const std::string& handle() const { return handle_; }

  /// Closes the file descriptor, after all processes have opened the memory.
  void seal();

 private:
  SharedMemory(int file, std::size_t bytes, std::string handle);

  const pid_t process_;
  int file_;
  std::size_t bytes_;
  std::string handle_;
  std::byte* data_ = nullptr;
};

}  // namespace pyc
