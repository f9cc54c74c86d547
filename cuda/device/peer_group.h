// File: cuda/device/peer_group.h
// The memory through which the GPUs of one host exchange data: each rank's, mapped by all others.
// Kernels use it by cuda/gpu_exchange.h. If a GPU cannot reach another's memory, NCCL moves the
// data of all ranks instead (nccl.h).
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<PeerGroup> group, PeerGroup::Join(0, ranks, stream));
//   Launch(stream, shape, Kernel, ..., group->memory());
//   PAGEMILL_RETURN_IF_ERROR(group->status());  // once the kernels are done
//
// Ranks are processes, or threads of one. Addresses stay the same, so that graphs keep them.
#ifndef PAGEMILL_CUDA_DEVICE_PEER_GROUP_H_
#define PAGEMILL_CUDA_DEVICE_PEER_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cc/base/status.h"
#include "cc/device/stream.h"
#include "cuda/device/nccl.h"
#include "cuda/gpu_runtime.h"

namespace pagemill::gpu {

inline constexpr int32_t kMaxPeers = 8;         // ranks of a group
inline constexpr int32_t kExchangeBlocks = 32;  // of a kernel that exchanges data, at most

// What a kernel gets. A rank's memory is, from its base:
//
//   inbox      2 * inbox_bytes                      what others have sent; a half by turns
//   arrivals   [kExchangeBlocks, kMaxPeers] uint64  exchanges that a block of a rank has come to
//   epochs     [kExchangeBlocks] uint64             exchanges that its own blocks have done
//   gave_up    uint64                               not 0: a rank did not come
struct PeerMemory {
  std::byte* bases[kMaxPeers];
  uint64_t* failed;     // in host memory: not 0 when a rank did not come
  int64_t inbox_bytes;  // a multiple of 16
  uint64_t limit_ns;    // that a block waits
  int32_t rank;
  int32_t num_ranks;
};

class PeerGroup {
 public:
  // A call of all ranks. kInvalidArgument: there are more than kMaxPeers, or the buffer has no room
  // for 16 bytes of each. kFailedPrecondition: a rank's memory cannot be reached, and a rank has no
  // NCCL.
  static StatusOr<std::unique_ptr<PeerGroup>> Join(int32_t device, const device::Ranks& ranks,
                                                   PAGEMILL_GPU(Stream_t) stream);
  // No kernel of this rank may run any more. Those of others do not touch its memory once the last
  // kernel that both launched is done here.
  ~PeerGroup();
  PeerGroup(const PeerGroup&) = delete;
  PeerGroup& operator=(const PeerGroup&) = delete;

  // With NCCL, only this rank's inbox may be used.
  const PeerMemory& memory() const { return memory_; }
  std::byte* inbox(int half) const { return own_ + half * memory_.inbox_bytes; }
  // Null if every rank reaches all others.
  const Nccl* nccl() const { return nccl_.get(); }
  // kUnavailable if a kernel has waited for another rank in vain.
  Status status() const;

 private:
  explicit PeerGroup(int32_t device) : device_(device) {}
  Status Allocate(const device::Ranks& ranks, PAGEMILL_GPU(Stream_t) stream);
  StatusOr<bool> MapOthers(const device::Ranks& ranks);  // false: one cannot be reached
  Status JoinLibrary(const device::Ranks& ranks);

  const int32_t device_;
  PeerMemory memory_ = {};
  std::byte* own_ = nullptr;
  bool is_mapped_[kMaxPeers] = {};  // by this process, from another
  std::unique_ptr<Nccl> nccl_;
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_DEVICE_PEER_GROUP_H_
