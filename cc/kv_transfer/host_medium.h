// File: cc/kv_transfer/host_medium.h
// The host tier's memory, and the copies between it and KV pages.
//
//   auto arena = std::make_shared<HostArena>(num_slots, slot_bytes);
//   worker.Add(kHostMedium, std::make_unique<HostMedium>(arena, pages));
//
// A slot takes memory when it is first written, unless the arena is in memory of
// PageStore::NewHostMemory(). Thread safety: slots are independent; the index
// (BlockTier) ensures that no transfer writes a slot that another transfer uses.
#ifndef PAGEMILL_CC_KV_TRANSFER_HOST_MEDIUM_H_
#define PAGEMILL_CC_KV_TRANSFER_HOST_MEDIUM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "cc/kv_cache/transfer.h"
#include "cc/kv_transfer/threaded_worker.h"
#include "cc/step/page_store.h"

namespace pagemill::kv_transfer {

class HostArena {
 public:
  HostArena(int64_t num_slots, size_t slot_bytes)
      : slot_bytes_(slot_bytes),
        own_(new std::byte[static_cast<size_t>(num_slots) * slot_bytes]),  // not touched
        data_(own_.get()) {}
  // In `memory`, which outlives it.
  HostArena(std::span<std::byte> memory, size_t slot_bytes)
      : slot_bytes_(slot_bytes), data_(memory.data()) {}

  // The first `size` bytes of a slot.
  std::span<std::byte> slot(int64_t slot, size_t size) const {
    return {data_ + static_cast<size_t>(slot) * slot_bytes_, size};
  }

 private:
  const size_t slot_bytes_;
  const std::unique_ptr<std::byte[]> own_;
  std::byte* const data_;
};

class HostMedium final : public TransferMedium {
 public:
  // `pages` must outlive the medium.
  HostMedium(std::shared_ptr<HostArena> arena, step::PageStore* pages)
      : arena_(std::move(arena)), pages_(pages) {}

  kv_cache::KvTransferResult Run(const kv_cache::KvTransfer& transfer) override;

 private:
  const std::shared_ptr<HostArena> arena_;
  step::PageStore* const pages_;
};

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_HOST_MEDIUM_H_
