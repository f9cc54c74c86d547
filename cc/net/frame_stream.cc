#include "cc/net/frame_stream.h"

#include <poll.h>

#include <string>

#include "cc/base/endian.h"

namespace pagemill::net {

short FrameStream::events() const {  // NOLINT(google-runtime-int)
  return num_queued_bytes() > 0 ? POLLIN | POLLOUT : POLLIN;
}

void FrameStream::Queue(uint32_t type, std::initializer_list<std::span<const std::byte>> parts) {
  size_t size = 0;
  for (const auto part : parts) size += part.size();
  const size_t at = queued_.size();
  queued_.resize(at + kHeadBytes);
  StoreLittle32(static_cast<uint32_t>(size), &queued_[at]);
  StoreLittle32(type, &queued_[at + 4]);
  for (const auto part : parts) queued_.insert(queued_.end(), part.begin(), part.end());
}

Status FrameStream::Flush(int64_t now_ms) {
  if (num_queued_bytes() == 0) return OkStatus();
  if (!queued_ms_) queued_ms_ = now_ms;
  PAGEMILL_ASSIGN_OR_RETURN(const size_t sent, socket_.Send(std::span(queued_).subspan(num_sent_)));
  num_sent_ += sent;
  if (num_sent_ == queued_.size()) {
    queued_.clear();
    num_sent_ = 0;
    queued_ms_.reset();
  } else if (now_ms - *queued_ms_ > timeout_ms_) {
    return {StatusCode::kDeadlineExceeded, "the other side reads too slowly"};
  }
  return OkStatus();
}

StatusOr<std::optional<Frame>> FrameStream::Read(size_t max_bytes, int64_t now_ms) {
  if (num_received_ == frame_bytes_) {  // that frame was returned
    num_received_ = 0;
    frame_bytes_ = kHeadBytes;
  }
  while (num_received_ < frame_bytes_) {
    const auto missing = std::span(frame_).first(frame_bytes_).subspan(num_received_);
    PAGEMILL_ASSIGN_OR_RETURN(const size_t received, socket_.Receive(missing));
    if (received == 0) {
      if (begun_ms_ && now_ms - *begun_ms_ > timeout_ms_) {
        return Status(StatusCode::kDeadlineExceeded, "the other side writes too slowly");
      }
      return std::optional<Frame>();
    }
    if (!begun_ms_) begun_ms_ = now_ms;
    num_received_ += received;
    if (num_received_ != kHeadBytes || frame_bytes_ != kHeadBytes) continue;
    const size_t size = LoadLittle32(frame_.data());
    if (size == 0 || size > max_bytes) {
      return DataLoss("a message of " + std::to_string(size) + " bytes, which is not one of ours");
    }
    frame_bytes_ = kHeadBytes + size;
    if (frame_.size() < frame_bytes_) frame_.resize(frame_bytes_);
  }
  begun_ms_.reset();
  return std::optional<Frame>(
      {.type = LoadLittle32(&frame_[4]),
       .payload = std::span(frame_).first(frame_bytes_).subspan(kHeadBytes)});
}

}  // namespace pagemill::net
