#include "cc/program/kv/cache_pages.h"

#include <cstring>

#include "cc/base/status.h"

namespace pagemill::program {

using step::BlockId;
using step::GroupId;

std::span<std::byte> CachePages::Page(BlockId block, size_t size) const {
  PAGEMILL_CHECK(size == page_bytes_);
  PAGEMILL_CHECK(block.value() >= 0);
  const size_t index = static_cast<size_t>(block.value());
  PAGEMILL_CHECK(index < arena_.size() / page_bytes_);
  return arena_.subspan(index * page_bytes_, page_bytes_);
}

Status CachePages::Read(GroupId, BlockId block, std::span<std::byte> to) const {
  std::memcpy(to.data(), Page(block, to.size()).data(), to.size());
  return OkStatus();
}

Status CachePages::Write(GroupId, BlockId block, std::span<const std::byte> from) {
  std::memcpy(Page(block, from.size()).data(), from.data(), from.size());
  return OkStatus();
}

}  // namespace pagemill::program
