#include "cc/device/populate_ahead.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace pagemill::device {
namespace {

constexpr size_t kPiece = size_t{2} << 20;  // a large page of most systems

// The pages that `bytes` lie in; false where the system refuses.
bool Populate(std::span<std::byte> bytes) {
#if defined(MADV_POPULATE_WRITE)
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
  return madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE) == 0;
#else
  return bytes.empty();
#endif
}

}  // namespace

PopulateAhead::PopulateAhead(std::vector<std::span<std::byte>> regions)
    : thread_([this, regions = std::move(regions)] { Run(regions); }) {}

PopulateAhead::~PopulateAhead() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

bool PopulateAhead::Wait() {
  if (thread_.joinable()) thread_.join();
  return !refused_;
}

void PopulateAhead::Run(const std::vector<std::span<std::byte>>& regions) {
  pthread_setname_np(pthread_self(), "pm-populate");
  bool more = true;
  for (size_t begin = 0; more; begin += kPiece) {
    more = false;
    for (std::span<std::byte> region : regions) {
      if (begin >= region.size()) continue;
      if (stopping_) return;
      if (!Populate(region.subspan(begin, std::min(kPiece, region.size() - begin)))) {
        refused_ = true;
        return;
      }
      more = true;
    }
  }
}

}  // namespace pagemill::device
