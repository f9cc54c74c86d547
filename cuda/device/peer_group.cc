#include "cuda/device/peer_group.h"

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "cc/device/ranks.h"
#include "cuda/device/gpu_stream.h"

namespace pagemill::gpu {
namespace {

constexpr int64_t kWords = kExchangeBlocks * kMaxPeers + kExchangeBlocks + 1;

// How another rank reaches this one's memory.
struct Offer {
  int64_t process_id;
  int64_t device;
  void* address;  // in that process
  PAGEMILL_GPU(IpcMemHandle_t) handle;
};

Status CheckRanks(const device::Ranks& ranks) {
  if (ranks.num_ranks > kMaxPeers) {
    const std::string most = std::to_string(kMaxPeers);
    return InvalidArgument("GPUs exchange data among " + most + " ranks at most, not " +
                           std::to_string(ranks.num_ranks) + ": use --tensor-parallel-size " + most);
  }
  if (ranks.buffer_bytes >= 2 * 16 * ranks.num_ranks) return OkStatus();
  return InvalidArgument("a buffer of " + std::to_string(ranks.buffer_bytes) +
                         " bytes is too small for " + std::to_string(ranks.num_ranks) + " ranks");
}

// Lets this thread's GPU use memory of another that this process has allocated.
bool Reaches(int32_t device, int32_t other) {
  if (device == other) return true;
  int can = 0;
  if (PAGEMILL_GPU(DeviceCanAccessPeer)(&can, device, other) != PAGEMILL_GPU(Success)) return false;
  if (can == 0) return false;
  const auto error = PAGEMILL_GPU(DeviceEnablePeerAccess)(other, 0);
  if (error == PAGEMILL_GPU(ErrorPeerAccessAlreadyEnabled)) (void)PAGEMILL_GPU(GetLastError)();
  return error == PAGEMILL_GPU(Success) || error == PAGEMILL_GPU(ErrorPeerAccessAlreadyEnabled);
}

}  // namespace

StatusOr<std::unique_ptr<PeerGroup>> PeerGroup::Join(int32_t device, const device::Ranks& ranks,
                                                     PAGEMILL_GPU(Stream_t) stream) {
  PAGEMILL_RETURN_IF_ERROR(CheckRanks(ranks));
  PAGEMILL_RETURN_IF_ERROR(ToStatus(PAGEMILL_GPU(SetDevice)(device), "to be selected"));
  auto group = std::unique_ptr<PeerGroup>(new PeerGroup(device));
  PAGEMILL_RETURN_IF_ERROR(group->Allocate(ranks, stream));
  PAGEMILL_ASSIGN_OR_RETURN(const bool reaches_others, group->MapOthers(ranks));
  PAGEMILL_ASSIGN_OR_RETURN(const bool all_reach, device::OnAllRanks(ranks, reaches_others));
  if (!all_reach) PAGEMILL_RETURN_IF_ERROR(group->JoinLibrary(ranks));
  return StatusOr<std::unique_ptr<PeerGroup>>(std::move(group));
}

Status PeerGroup::Allocate(const device::Ranks& ranks, PAGEMILL_GPU(Stream_t) stream) {
  memory_.rank = ranks.rank;
  memory_.num_ranks = ranks.num_ranks;
  memory_.limit_ns = static_cast<uint64_t>(ranks.limit_ms) * 1'000'000;
  memory_.inbox_bytes = ranks.buffer_bytes / 2 / 16 * 16;
  const auto inboxes = static_cast<size_t>(2 * memory_.inbox_bytes);
  const size_t words = kWords * sizeof(uint64_t);
  void* address = nullptr;
  if (MallocForPeers(&address, inboxes + words) != PAGEMILL_GPU(Success)) {
    (void)PAGEMILL_GPU(GetLastError)();
    return ResourceExhausted("the GPU has no memory left for " + std::to_string(inboxes + words) +
                             " bytes that other ranks write to");
  }
  own_ = static_cast<std::byte*>(address);
  PAGEMILL_RETURN_IF_ERROR(
      ToStatus(PAGEMILL_GPU(HostAlloc)(&address, sizeof(uint64_t), PAGEMILL_GPU(HostAllocDefault)),
               "to allocate memory of the host"));
  memory_.failed = static_cast<uint64_t*>(address);
  *memory_.failed = 0;
  const std::vector<std::byte> zeros(words);
  PAGEMILL_RETURN_IF_ERROR(
      ToStatus(PAGEMILL_GPU(MemcpyAsync)(own_ + inboxes, zeros.data(), words,
                                         PAGEMILL_GPU(MemcpyHostToDevice), stream),
               "to copy memory"));
  return ToStatus(PAGEMILL_GPU(StreamSynchronize)(stream), "to copy memory");
}

StatusOr<bool> PeerGroup::MapOthers(const device::Ranks& ranks) {
  Offer own = {.process_id = getpid(), .device = device_, .address = own_, .handle = {}};
  PAGEMILL_RETURN_IF_ERROR(
      ToStatus(PAGEMILL_GPU(IpcGetMemHandle)(&own.handle, own_), "to share memory"));
  PAGEMILL_ASSIGN_OR_RETURN(const std::vector<Offer> all, device::TellRanks(ranks, own));
  bool reaches_all = true;
  for (int32_t r = 0; r < ranks.num_ranks; ++r) {
    const Offer& offer = all[static_cast<size_t>(r)];
    void* address = offer.address;
    if (offer.process_id == own.process_id) {
      reaches_all = reaches_all && Reaches(device_, static_cast<int32_t>(offer.device));
    } else {
      is_mapped_[r] = PAGEMILL_GPU(IpcOpenMemHandle)(&address, offer.handle,
                                                     PAGEMILL_GPU(IpcMemLazyEnablePeerAccess)) ==
                      PAGEMILL_GPU(Success);
      reaches_all = reaches_all && is_mapped_[r];
    }
    memory_.bases[r] = static_cast<std::byte*>(address);
  }
  (void)PAGEMILL_GPU(GetLastError)();
  return reaches_all;
}

Status PeerGroup::JoinLibrary(const device::Ranks& ranks) {
  const StatusOr<NcclLibrary> library = NcclLibrary::Open();
  PAGEMILL_ASSIGN_OR_RETURN(const bool all_have, device::OnAllRanks(ranks, library.ok()));
  if (all_have) {
    PAGEMILL_ASSIGN_OR_RETURN(nccl_, Nccl::Join(*library, ranks));
    return OkStatus();
  }
  return FailedPrecondition(
      "the GPUs of the ranks cannot reach each other's memory, and there is no NCCL: " +
      (library.ok() ? "another rank has none" : library.status().message()) +
      "; install it, or use --tensor-parallel-size 1");
}

PeerGroup::~PeerGroup() {
  (void)PAGEMILL_GPU(SetDevice)(device_);
  for (int32_t r = 0; r < kMaxPeers; ++r) {
    if (is_mapped_[r]) (void)PAGEMILL_GPU(IpcCloseMemHandle)(memory_.bases[r]);
  }
  if (memory_.failed != nullptr) (void)PAGEMILL_GPU(FreeHost)(memory_.failed);
  if (own_ != nullptr) (void)PAGEMILL_GPU(Free)(own_);
}

Status PeerGroup::status() const {
  if (__atomic_load_n(memory_.failed, __ATOMIC_ACQUIRE) == 0) return OkStatus();
  return Unavailable("another rank did not come to a collective within " +
                     std::to_string(memory_.limit_ns / 1'000'000'000) + " s");
}

}  // namespace pagemill::gpu
