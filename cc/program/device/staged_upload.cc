#include "cc/program/device/staged_upload.h"

#include <algorithm>
#include <cstring>

namespace pagemill::program {
namespace {

// Bytes that a thread copies at a time: an expert's matrix, of some MB, has enough for 16 threads.
constexpr int64_t kGrain = int64_t{128} << 10;

}  // namespace

void CopyInParallel(std::span<const std::byte> from, std::byte* to, device::ThreadPool& pool) {
  const auto bytes = static_cast<int64_t>(from.size());
  pool.ParallelFor(bytes, kGrain, [&](int64_t begin, int64_t end, int) {
    std::memcpy(to + begin, from.data() + begin, static_cast<size_t>(end - begin));
  });
}

StatusOr<StagedUpload> StagedUpload::Begin(device::Device& device, std::span<std::byte> to,
                                           int64_t buffer_bytes) {
  StagedUpload upload;
  upload.to_ = to;
  const int64_t bytes = std::min(buffer_bytes, static_cast<int64_t>(to.size()));
  for (Buffer& buffer : upload.buffers_) {
    PAGEMILL_ASSIGN_OR_RETURN(buffer.memory, device.AllocateHost(bytes, "weights on their way"));
    buffer.copied = device.NewEvent();
  }
  PAGEMILL_ASSIGN_OR_RETURN(upload.stream_, device.NewStream());
  return upload;
}

Status StagedUpload::Write(int64_t offset, std::span<const std::byte> bytes,
                           device::ThreadPool& pool) {
  while (!bytes.empty()) {
    const auto capacity = static_cast<int64_t>(buffers_[current_].memory.bytes().size());
    if (filled_ > 0 && offset >= begin_ + capacity) PAGEMILL_RETURN_IF_ERROR(Flush());
    if (filled_ == 0) begin_ = offset;
    const int64_t at = offset - begin_;
    const int64_t count = std::min(static_cast<int64_t>(bytes.size()), capacity - at);
    CopyInParallel(bytes.first(static_cast<size_t>(count)), buffers_[current_].memory.data() + at,
                   pool);
    filled_ = at + count;
    offset += count;
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return OkStatus();
}

// Sends the current buffer and waits until the other one may be filled.
Status StagedUpload::Flush() {
  Buffer& buffer = buffers_[current_];
  const std::span<const std::byte> bytes =
      buffer.memory.bytes().first(static_cast<size_t>(filled_));
  if (!bytes.empty()) stream_->CopyToDevice(to_.data() + begin_, bytes);
  stream_->Record(*buffer.copied);
  filled_ = 0;
  current_ = 1 - current_;
  return buffers_[current_].copied->Synchronize();
}

Status StagedUpload::Finish() {
  PAGEMILL_RETURN_IF_ERROR(Flush());
  return buffers_[1 - current_].copied->Synchronize();
}

}  // namespace pagemill::program
