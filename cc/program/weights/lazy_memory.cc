#include "cc/program/weights/lazy_memory.h"

#include <sys/mman.h>

#include <string>

namespace pagemill::program {

StatusOr<LazyMemory> LazyMemory::Allocate(int64_t bytes, const char* purpose,
                                          const device::MemoryPlacement& placement) {
  constexpr int64_t kHugePage = 2 << 20;
  if (bytes <= 0) return LazyMemory();
  void* data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted("cannot reserve " + std::to_string(bytes) + " bytes for " + purpose +
                             "; raise the limit of the process's memory (ulimit -v), or give the"
                             " KV cache less");
  }
#ifdef MADV_HUGEPAGE
  // Advice: if the kernel has no huge pages, small ones serve.
  if (bytes >= 2 * kHugePage) ::madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
#endif
  LazyMemory memory(std::span(static_cast<std::byte*>(data), static_cast<size_t>(bytes)));
  (void)device::PlaceMemory(memory.bytes(), placement);  // failure only costs speed
  return memory;
}

void LazyMemory::DropPages() const {
  if (!bytes_.empty()) ::madvise(bytes_.data(), bytes_.size(), MADV_DONTNEED);
}

LazyMemory::~LazyMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace pagemill::program
