// File: cc/program/kv/cache_pages.h
// The KV cache of a bound program as pages of bytes: a page is one block of every layer, one layer
// after the other. Made by NativeExecutor, for those who copy KV elsewhere.
//
//   CachePages pages({{layer_0, 4096}, {layer_1, 4096}}, /*num_blocks=*/100);
//   std::vector<std::byte> bytes(pages.page_bytes(GroupId(0)));   // 8192
//   pages.Read(GroupId(0), BlockId(7), bytes);
//
// There is one group, since a step has one block table. Thread safety: that of PageStore.
#ifndef PAGEMILL_CC_PROGRAM_KV_CACHE_PAGES_H_
#define PAGEMILL_CC_PROGRAM_KV_CACHE_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/step/page_store.h"

namespace pagemill::program {

class CachePages final : public step::PageStore {
 public:
  struct Layer {
    std::byte* data = nullptr;  // of all blocks; outlives the store
    size_t block_bytes = 0;
  };
  CachePages(std::vector<Layer> layers, int32_t num_blocks);

  size_t page_bytes(step::GroupId group) const override;
  void Read(step::GroupId group, step::BlockId block, std::span<std::byte> to) const override;
  void Write(step::GroupId group, step::BlockId block, std::span<const std::byte> from) override;

 private:
  void RequirePage(step::GroupId group, step::BlockId block, size_t size) const;

  const std::vector<Layer> layers_;
  const int32_t num_blocks_;
  size_t page_bytes_ = 0;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_KV_CACHE_PAGES_H_
