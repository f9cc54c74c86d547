// File: cc/program/kv/kv_layout.h
// Lays out the caches of a program in one arena of equal pages, which all KV groups share.
//
//   PAGEMILL_ASSIGN_OR_RETURN(KvLayout layout, PlanKvLayout(program, {.num_blocks = 100}));
//   const KvLayout::Cache& cache = layout.caches[id.value()];
//   std::byte* block = arena + page * layout.page_bytes + cache.offset_bytes;
//
// A page holds a block of some layers of one group, one layer after the other. A group with more
// layers than fit on a page has several tables, each with pages of its own for the same tokens:
//
//   group full,    3 layers   table 0, page 7: | layer 2 | layer 8 | layer 14 |
//   group sliding, 6 layers   table 1, page 4: | layer 0 | layer 1 | layer 3  |
//                             table 2, page 9: | layer 4 | layer 5 | layer 6  |
//
// A cache is placed in the first table of its group with room, so that small states (those of
// convolutions) share pages. Thus a block is always one page and moves in one copy. To the
// scheduler each table is a KV group (step::KvGroupOptions).
//
// A block of a latent cache with a row for each m tokens has m tokens times a power of two, at most
// 128 tokens if m is not larger, however much room a page has.
//
// The page size and the tokens per block of each group are chosen so that a request of 1,024 tokens
// takes the fewest bytes, of a window those of the blocks that it touches; among equals the
// smallest page wins, because prefixes match in multiples of every group's block. A group whose
// layers together are smaller than a page gets larger blocks. States lie at the boundaries of the
// largest block; ops/states/state_pages.h describes the entries of their tables.
#ifndef PAGEMILL_CC_PROGRAM_KV_KV_LAYOUT_H_
#define PAGEMILL_CC_PROGRAM_KV_KV_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/program/program.h"
#include "cc/step/kv_group_options.h"
#include "cc/tensor/dtype.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::program {

// The size of the KV cache, and the cache dtype that `kv` stands for.
struct CacheGeometry {
  int32_t num_blocks = 1;   // pages of the arena, the null page included
  int32_t block_size = 16;  // tokens of the smallest block
  DType dtype = DType::kBF16;
  // Bytes of a page; 0 = chosen for this program. A program that shares another program's arena
  // uses its page size.
  int64_t page_bytes = 0;
  // Pages of the newest states in front of each table of states (ops/states/state_pages.h).
  int32_t recent_states = 0;
  bool state_checkpoints = true;  // false: tables of states have no positions
};

struct KvLayout {
  struct Table {
    int32_t group = 0;          // index into Program::groups()
    int32_t block_size = 0;     // tokens of a block: a multiple of the geometry's
    int32_t recent_states = 0;  // the geometry's; 0 if it is no table of states
  };
  struct Cache {
    int32_t table = 0;         // index into `tables` and StepBatch::kv
    int64_t offset_bytes = 0;  // in a page
  };

  CacheGeometry geometry;
  int64_t page_bytes = 0;     // 0 if the program has no caches
  std::vector<Table> tables;  // those of a group follow each other
  std::vector<Cache> caches;  // per value; empty unless it is a cache

  int32_t BlockSizeOf(const Cache& cache) const {
    return tables[static_cast<size_t>(cache.table)].block_size;
  }
  std::vector<int32_t> TableBlockSizes() const;  // tokens
  int64_t arena_bytes() const { return page_bytes * geometry.num_blocks; }
};

// kInvalidArgument if slots (page * block size + offset) exceed int32, or if a page of the given
// size does not hold a block of one layer.
StatusOr<KvLayout> PlanKvLayout(const Program& program, const CacheGeometry& geometry);

// The scheduler's options for each table, in order.
std::vector<step::KvGroupOptions> KvGroupsOf(const Program& program, const KvLayout& layout);

// The pages of one block of `cache`'s layer, for every page of the arena, which begins at `arena`:
//   kv      [pages, elements of a block] (docs/program_format.md, the KV cache page)
//   latent  [pages, block_size / tokens of a row, width, or bytes of a row if it is f8_e4m3]
//   state   [pages, dims...]
TensorView CacheView(const Value& cache, const KvLayout::Cache& place, const KvLayout& layout,
                     std::byte* arena);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_KV_KV_LAYOUT_H_
