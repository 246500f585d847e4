#include "node/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace pyc {
namespace {

std::string refusal(const std::string& what, std::size_t bytes) {
  return "memory of " + std::to_string(bytes) + " bytes: " + what + ": " + std::strerror(errno);
}

[[noreturn]] void refuse(const std::string& what, std::size_t bytes) {
  throw std::runtime_error("shared " + refusal(what, bytes) + "; ranks_per_node=1 works without");
}

/// Memory that this process has created and still uses. Ranks that are threads of one process share the mapping.
struct Made {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<SharedMemory>> by_handle;
};
Made& made() {
  static auto* const instance = new Made;
  return *instance;
}

}  // namespace

SharedMemory::SharedMemory(int file, std::size_t bytes, std::string handle)
    : process_(getpid()), file_(file), bytes_(bytes), handle_(std::move(handle)) {
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
  if (data == MAP_FAILED && file < 0) throw std::runtime_error(refusal("mmap", bytes));
  if (data == MAP_FAILED) {
    const int error = errno;
    ::close(file);
    errno = error;
    refuse("mmap", bytes);
  }
  data_ = static_cast<std::byte*>(data);
}

std::shared_ptr<SharedMemory> SharedMemory::create(std::size_t bytes) {
  const int file = memfd_create("pycollectives", MFD_CLOEXEC);
  if (file < 0) refuse("memfd_create", bytes);
  if (ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    ::close(file);
    errno = error;
    refuse("ftruncate", bytes);
  }
  const std::string handle = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file);
  std::shared_ptr<SharedMemory> memory(new SharedMemory(file, bytes, handle));
  const std::lock_guard lock(made().mutex);
  made().by_handle[handle] = memory;
  return memory;
}

std::shared_ptr<SharedMemory> SharedMemory::create_private(std::size_t bytes) {
  return std::shared_ptr<SharedMemory>(new SharedMemory(-1, bytes, {}));
}

std::shared_ptr<SharedMemory> SharedMemory::open(const std::string& handle) {
  {
    const std::lock_guard lock(made().mutex);
    const auto found = made().by_handle.find(handle);
    if (found != made().by_handle.end()) {
      if (auto memory = found->second.lock()) return memory;
    }
  }
  const int file = ::open(handle.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) refuse("open " + handle, 0);
  struct stat status{};
  if (fstat(file, &status) != 0) {
    const int error = errno;
    ::close(file);
    errno = error;
    refuse("fstat " + handle, 0);
  }
  std::shared_ptr<SharedMemory> memory(new SharedMemory(file, static_cast<std::size_t>(status.st_size), handle));
  memory->seal();  // other ranks open it through its creator
  return memory;
}

void SharedMemory::seal() {
  if (getpid() != process_) return;  // in a fork, a thread that no longer exists may hold the mutex
  const std::lock_guard lock(made().mutex);
  if (file_ < 0) return;
  made().by_handle.erase(handle_);
  ::close(std::exchange(file_, -1));
}

SharedMemory::~SharedMemory() {
  seal();
  munmap(data_, bytes_);
}

}  // namespace pyc
