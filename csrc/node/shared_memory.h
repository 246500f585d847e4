// Memory that the processes of one node share.
//
// An anonymous file (memfd) that the others open through its maker's /proc entry: it has no name, so nothing stays
// behind whatever becomes of the job, its pages are freed with the last mapping, and no process waits for another to
// free it. *Rejected: an MPI-3 shared window*: freeing it is collective, so a collective that some ranks have closed
// would keep its memory until all meet again, and its backing file has a name and needs room in /dev/shm.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace pyc {

// What processes share is atomic of these sizes: one with a lock in it would be right within a process only.
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::int32_t>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<double>::is_always_lock_free);

class SharedMemory {
 public:
  /// Zeroed, and backed by pages as they are touched. std::runtime_error says what the system refused.
  static std::shared_ptr<SharedMemory> create(std::size_t bytes);

  /// The same for ranks of this process alone: no file, no handle.
  static std::shared_ptr<SharedMemory> create_private(std::size_t bytes);

  /// What `create` returned elsewhere, by its `handle`. Opening in the process that made it gives the same object.
  static std::shared_ptr<SharedMemory> open(const std::string& handle);

  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  const std::string& handle() const { return handle_; }

  /// Everybody who is to open it has: the file descriptor is given back.
  void seal();

 private:
  SharedMemory(int file, std::size_t bytes, std::string handle);

  const pid_t process_;  // that has opened it
  int file_;
  std::size_t bytes_;
  std::string handle_;
  std::byte* data_ = nullptr;
};

}  // namespace pyc
