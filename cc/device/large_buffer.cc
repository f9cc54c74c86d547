#include "cc/device/large_buffer.h"

#include <sys/mman.h>

namespace pagemill::device {

std::optional<LargeBuffer> LargeBuffer::Make(int64_t size_bytes) {
  if (size_bytes <= 0) return std::nullopt;
  const size_t size = static_cast<size_t>(size_bytes);
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return std::nullopt;
#if defined(MADV_HUGEPAGE)
  // Only advice: if the kernel refuses large pages, small ones serve.
  (void)madvise(data, size, MADV_HUGEPAGE);
#endif
  return LargeBuffer(static_cast<std::byte*>(data), size);
}

LargeBuffer::~LargeBuffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace pagemill::device
