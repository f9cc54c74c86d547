// File: cc/program/kv/cache_pages.h
// The pages of a bound program's KV arena (kv_layout.h) as bytes, for tiers, connectors and saved
// sessions. Made by NativeExecutor.
//
//   CachePages pages(arena, /*page_bytes=*/8192);
//   std::vector<std::byte> bytes(pages.page_bytes(GroupId(0)));   // 8192
//   Status status = pages.Read(GroupId(0), BlockId(7), bytes);
//
// Pages have the same size in every group. Thread safety: as PageStore.
#ifndef PAGEMILL_CC_PROGRAM_KV_CACHE_PAGES_H_
#define PAGEMILL_CC_PROGRAM_KV_CACHE_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/step/page_store.h"

namespace pagemill::program {

class CachePages final : public step::PageStore {
 public:
  // `arena` must outlive the store.
  CachePages(std::span<std::byte> arena, size_t page_bytes)
      : arena_(arena), page_bytes_(page_bytes) {}

  size_t page_bytes(step::GroupId) const override { return page_bytes_; }
  Status Read(step::GroupId group, step::BlockId block, std::span<std::byte> to) const override;
  Status Write(step::GroupId group, step::BlockId block, std::span<const std::byte> from) override;
  std::vector<step::PageRegion> regions() const override { return {{arena_, page_bytes_}}; }

 private:
  std::span<std::byte> Page(step::BlockId block, size_t size) const;

  const std::span<std::byte> arena_;
  const size_t page_bytes_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_KV_CACHE_PAGES_H_
