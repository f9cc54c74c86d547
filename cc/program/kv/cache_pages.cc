#include "cc/program/kv/cache_pages.h"

#include <cstring>
#include <utility>

#include "cc/base/status.h"

namespace pagemill::program {

using step::BlockId;
using step::GroupId;

CachePages::CachePages(std::vector<Layer> layers, int32_t num_blocks)
    : layers_(std::move(layers)), num_blocks_(num_blocks) {
  for (const Layer& layer : layers_) page_bytes_ += layer.block_bytes;
}

size_t CachePages::page_bytes(GroupId group) const {
  PM_CHECK(group == GroupId(0));
  return page_bytes_;
}

void CachePages::RequirePage(GroupId group, BlockId block, size_t size) const {
  PM_CHECK(group == GroupId(0));
  PM_CHECK(block.value() >= 0 && block.value() < num_blocks_);
  PM_CHECK(size == page_bytes_);
}

void CachePages::Read(GroupId group, BlockId block, std::span<std::byte> to) const {
  RequirePage(group, block, to.size());
  std::byte* target = to.data();
  for (const Layer& layer : layers_) {
    std::memcpy(target, layer.data + static_cast<size_t>(block.value()) * layer.block_bytes,
                layer.block_bytes);
    target += layer.block_bytes;
  }
}

void CachePages::Write(GroupId group, BlockId block, std::span<const std::byte> from) {
  RequirePage(group, block, from.size());
  const std::byte* source = from.data();
  for (const Layer& layer : layers_) {
    std::memcpy(layer.data + static_cast<size_t>(block.value()) * layer.block_bytes, source,
                layer.block_bytes);
    source += layer.block_bytes;
  }
}

}  // namespace pagemill::program
