// File: cc/program/device/staged_upload.h
// Sends bytes to consecutive addresses of a device through two buffers of host memory: one is
// filled while the other is copied.
//
//   PAGEMILL_ASSIGN_OR_RETURN(StagedUpload upload, StagedUpload::Begin(device, to, 32 << 20));
//   PAGEMILL_RETURN_IF_ERROR(upload.Write(offset, bytes, pool));   // offsets ascend
//   PAGEMILL_RETURN_IF_ERROR(upload.Finish());                     // then they may begin anew
//
// Thread safety: none.
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_STAGED_UPLOAD_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_STAGED_UPLOAD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cc/base/status.h"
#include "cc/device/device.h"
#include "cc/device/stream.h"
#include "cc/device/thread_pool.h"

namespace pagemill::program {

// Copies within the host's memory, with the threads of `pool`.
void CopyInParallel(std::span<const std::byte> from, std::byte* to, device::ThreadPool& pool);

class StagedUpload {
 public:
  // `buffer_bytes`: of each of the two buffers. What lies between bytes that are written, within
  // `buffer_bytes`, becomes undefined.
  static StatusOr<StagedUpload> Begin(device::Device& device, std::span<std::byte> to,
                                      int64_t buffer_bytes);

  // Copies `bytes` for the address `to` + `offset`, which must not be below the end of the previous
  // call since Finish(). Returns errors of earlier copies.
  Status Write(int64_t offset, std::span<const std::byte> bytes, device::ThreadPool& pool);
  // Waits for all copies.
  Status Finish();

 private:
  struct Buffer {
    device::HostMemory memory;
    std::unique_ptr<device::Event> copied;
  };

  Status Flush();

  std::span<std::byte> to_;
  std::array<Buffer, 2> buffers_;
  std::unique_ptr<device::Stream> stream_;  // after the buffers that it copies
  size_t current_ = 0;                      // the buffer that is filled
  int64_t begin_ = 0;                       // the offset that it begins at
  int64_t filled_ = 0;                      // bytes
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_STAGED_UPLOAD_H_
