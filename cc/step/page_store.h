// File: cc/step/page_store.h
// The bytes of KV pages, for those who copy them elsewhere: tiers, connectors, saved sessions. A
// runner that has one lets its KV leave the device (engine/runner.h).
//
//   std::vector<std::byte> bytes(pages->page_bytes(GroupId(0)));
//   PAGEMILL_RETURN_IF_ERROR(pages->Read(GroupId(0), BlockId(7), bytes));
//
// The bytes mean something to a store of the same model, layout and machine only.
#ifndef PAGEMILL_CC_STEP_PAGE_STORE_H_
#define PAGEMILL_CC_STEP_PAGE_STORE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/strong_id.h"
#include "cc/step/request.h"

namespace pagemill::step {

// A set of layers that share one block table; see KvCacheOptions::groups.
using GroupId = StrongId<struct GroupTag, uint16_t>;

// Memory that holds pages side by side: page `b` begins at b * page_bytes.
struct PageRegion {
  std::span<std::byte> bytes;
  size_t page_bytes = 0;
};

// Obligations of an implementer:
// 1. page_bytes() is constant and may be called from any thread. It is what a page holds for the
//    layers of `group`; spans given to the other two have this size.
// 2. Read() and Write() are called from any threads, also while a step runs, and touch no byte of
//    other blocks. They return when the bytes are copied, or with the error of a device that did
//    not copy them. The caller ensures that nothing else writes the block meanwhile, and that
//    nothing reads it while it is written; a step may read or write until it is collected.
// 3. Write() of what Read() gave makes the block, for the layers of the group, what it was, bit for
//    bit.
// 4. regions() is constant: the host memory in which the pages lie, for connectors that register
//    memory or copy pages without a buffer. What Read() gives of a page, for every group, is its
//    part of each region, in their order; rule 2 holds for accesses to the regions, too. Empty if
//    pages lie elsewhere or have another form.
// 5. NewHostMemory() returns memory that pages are copied from and to faster than from and to
//    other memory, for as long as the store lives; empty if there is no such memory.
class PageStore {
 public:
  virtual ~PageStore() = default;
  virtual size_t page_bytes(GroupId group) const = 0;
  virtual Status Read(GroupId group, BlockId block, std::span<std::byte> to) const = 0;
  virtual Status Write(GroupId group, BlockId block, std::span<const std::byte> from) = 0;
  virtual std::vector<PageRegion> regions() const { return {}; }
  virtual StatusOr<std::span<std::byte>> NewHostMemory(size_t /*bytes*/) {
    return std::span<std::byte>();
  }
};

}  // namespace pagemill::step

#endif  // PAGEMILL_CC_STEP_PAGE_STORE_H_
