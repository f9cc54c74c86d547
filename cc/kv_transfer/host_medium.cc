#include "cc/kv_transfer/host_medium.h"

namespace pagemill::kv_transfer {

kv_cache::KvTransferResult HostMedium::Run(const kv_cache::KvTransfer& transfer) {
  const bool loads = transfer.direction == kv_cache::KvTransfer::Direction::kLoad;
  if (!loads && transfer.direction != kv_cache::KvTransfer::Direction::kStore) {
    return {transfer.id, 0, Internal("the host tier only loads and stores")};
  }
  kv_cache::KvTransferResult result{transfer.id, 0, OkStatus()};
  for (size_t i = 0; i < transfer.blocks.size(); ++i) {
    const kv_cache::BlockContent& block = transfer.blocks[i];
    const std::span<std::byte> slot =
        arena_->slot(transfer.medium_slots[i], pages_->page_bytes(block.group));
    result.status = loads ? pages_->Write(block.group, block.block, slot)
                          : pages_->Read(block.group, block.block, slot);
    if (!result.status.ok()) return result;
    ++result.num_blocks_done;
  }
  return result;
}

}  // namespace pagemill::kv_transfer
