// File: cc/program/weights/lazy_memory.h
// A large zeroed range in which only touched pages take memory; freed by the destructor. For arenas
// that are planned for the largest step and mostly used for small ones.
#ifndef PAGEMILL_CC_PROGRAM_WEIGHTS_LAZY_MEMORY_H_
#define PAGEMILL_CC_PROGRAM_WEIGHTS_LAZY_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "cc/base/status.h"
#include "cc/device/numa.h"

namespace pagemill::program {

class LazyMemory {
 public:
  LazyMemory() = default;
  // Page aligned. Requests huge pages if the range is large enough, because hardware prefetch stops
  // at a page border. kResourceExhausted if the address space is exhausted. Pages are placed by
  // `placement`, or anywhere if the system refuses it.
  static StatusOr<LazyMemory> Allocate(int64_t bytes, const char* purpose,
                                       const device::MemoryPlacement& placement = {});
  ~LazyMemory();
  LazyMemory(LazyMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  LazyMemory& operator=(LazyMemory&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // Returns the memory of all pages to the system; they are zero when touched again.
  void DropPages() const;

  std::byte* data() const { return bytes_.data(); }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit LazyMemory(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_LAZY_MEMORY_H_
