// File: cc/device/large_buffer.h
// Zeroed page-aligned memory, in large pages if the system has them: hardware prefetch stops at the
// end of a page, which costs a third of the read bandwidth with pages of 4 KiB.
//
//   std::optional<LargeBuffer> buffer = LargeBuffer::Make(98 << 20);
//   if (!buffer) return ...;  // no memory
//   Fill(buffer->bytes());
#ifndef PAGEMILL_CC_DEVICE_LARGE_BUFFER_H_
#define PAGEMILL_CC_DEVICE_LARGE_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace pagemill::device {

class LargeBuffer {
 public:
  // nullopt if the system has not enough memory, or if `size_bytes` is not positive.
  static std::optional<LargeBuffer> Make(int64_t size_bytes);

  LargeBuffer(LargeBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  LargeBuffer& operator=(LargeBuffer&&) = delete;
  ~LargeBuffer();

  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  LargeBuffer(std::byte* data, size_t size) : data_(data), size_(size) {}
  std::byte* data_;
  size_t size_;
};

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_LARGE_BUFFER_H_
