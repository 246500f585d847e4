#include "memory/cuda/simulated_storage.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace pyc::cuda {
namespace {

constexpr std::size_t kPage = 4096;  // of the head, before the data
constexpr std::array<char, 16> kMark = {"simulated cuda"};

std::atomic<std::uint64_t> last_id{0};

bool is_running(std::int32_t process) { return process != 0 && (kill(process, 0) == 0 || errno == EPERM); }

}  // namespace

SimulatedStorage::SimulatedStorage(int file, std::size_t bytes) : file_(file), bytes_(bytes) {
  void* const memory = mmap(nullptr, kPage + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) throw std::runtime_error(std::string("simulated driver: mmap: ") + std::strerror(errno));
  head_ = static_cast<Head*>(memory);
}

std::shared_ptr<SimulatedStorage> SimulatedStorage::create(std::size_t bytes) {
  static_assert(sizeof(Head) <= kPage);
  const int file = memfd_create("simulated device", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(kPage + bytes)) != 0) {
    throw std::runtime_error(std::string("simulated driver: memfd_create: ") + std::strerror(errno));
  }
  std::shared_ptr<SimulatedStorage> made(new SimulatedStorage(file, bytes));
  made->head_->id = ++last_id;
  return made;
}

std::shared_ptr<SimulatedStorage> SimulatedStorage::open(const Handle& handle) {
  if (handle.mark != kMark) return nullptr;
  const std::string path = "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  struct stat status{};
  fstat(file, &status);
  const auto length = static_cast<std::size_t>(status.st_size);
  std::shared_ptr<SimulatedStorage> found(length > kPage ? new SimulatedStorage(file, length - kPage) : nullptr);
  ::close(file);
  if (found == nullptr) return nullptr;
  found->file_ = -1;
  if (found->head_->id != handle.id || found->is_free()) return nullptr;  // freed, or its file descriptor is used again
  for (std::atomic<std::int32_t>& entry : found->head_->mapped_by) {
    std::int32_t nobody = 0;
    if (!entry.compare_exchange_strong(nobody, getpid())) continue;
    found->mapped_ = &entry;
    return found;
  }
  throw std::runtime_error("simulated driver: expected at most 64 mappings of an allocation");
}

SimulatedStorage::~SimulatedStorage() {
  if (mapped_ != nullptr) mapped_->store(0);
  if (file_ >= 0) ::close(file_);
  munmap(head_, kPage + bytes_);
}

std::byte* SimulatedStorage::data() const { return reinterpret_cast<std::byte*>(head_) + kPage; }

SimulatedStorage::Handle SimulatedStorage::handle() const { return {kMark, getpid(), file_, head_->id}; }

std::size_t SimulatedStorage::mappings() const {
  const auto& all = head_->mapped_by;
  return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [](const auto& process) { return is_running(process.load()); }));
}

}  // namespace pyc::cuda
