// File: cuda/ops/all_reduce/items.h
// Rows as one sequence of items, vectors of 16 bytes or single elements, for collectives: which
// rows they lie in is all the same to them.
//
//   WithItems<T>(x, y, x.RowElements(), [&]<typename Item>(Item) {
//     Launch(stream, ShapeOfItems(count), Kernel<Item>, ItemsOf<const Item>(x), ...);
//   });
#ifndef PAGEMILL_CUDA_OPS_ALL_REDUCE_ITEMS_H_
#define PAGEMILL_CUDA_OPS_ALL_REDUCE_ITEMS_H_

#include <algorithm>
#include <cstdint>

#include "cc/device/stream.h"
#include "cc/tensor/tensor_view.h"
#include "cuda/device/peer_group.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

template <typename Item>
struct Items {
  Item* data;
  int64_t row_items, stride;  // of a row; items from one row to the next

  PAGEMILL_DEVICE Item& operator[](int64_t i) const {
    return i < row_items ? data[i] : data[i / row_items * stride + i % row_items];
  }
};

// Dense rows are one row.
template <typename Item>
Items<Item> ItemsOf(const TensorView& view) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Item));
  const int64_t row_bytes = RowBytes(view.dtype, view.RowElements());
  const int64_t rows = view.IsDense() ? view.shape[0] : 1;
  return {static_cast<Item*>(view.data), rows * row_bytes / kBytes, view.row_stride_bytes / kBytes};
}

// Calls `body` with an item of elements T: of 16 bytes if the rows of both views begin at whole
// ones and `part_elements` are whole ones. Operands of a program are aligned alike on all ranks.
template <typename T, typename Body>
void WithItems(const TensorView& x, const TensorView& y, int64_t part_elements, const Body& body) {
  constexpr int kWide = 16 / sizeof(T);
  const bool is_wide = HasAlignedRows(x) && HasAlignedRows(y) && part_elements % kWide == 0;
  if (is_wide) return body(Vector<T, kWide>{});
  body(Vector<T, 1>{});
}

// Blocks that walk `count` items, a thread every GridSize() * BlockSize() of them.
inline LaunchShape ShapeOfItems(int64_t count) {
  constexpr uint32_t kThreads = 512;
  const int64_t blocks = DivideUp(count, kThreads);
  return {.blocks = {static_cast<uint32_t>(std::min<int64_t>(blocks, kExchangeBlocks))},
          .threads = {kThreads}};
}

// Calls body(i) for the items i < count of a thread of such a block.
template <typename Body>
PAGEMILL_DEVICE void ForItems(int64_t count, const Body& body) {
  const int64_t step = static_cast<int64_t>(GridSize().x) * BlockSize().x;
  for (int64_t i = static_cast<int64_t>(BlockIndex().x) * BlockSize().x + ThreadIndex().x;
       i < count; i += step) {
    body(i);
  }
}

// y[to ...] = x[from ...]
template <typename Item>
PAGEMILL_KERNEL CopyItems(Items<const Item> x, int64_t from, Items<Item> y, int64_t to,
                          int64_t count) {
  ForItems(count, [&](int64_t i) { y[to + i] = x[from + i]; });
}

// The halves of a rank's inbox as memory for data that NCCL moves.
template <typename Item>
struct Staging {
  Item* sent;
  Item* received;
  int64_t items;  // of each

  explicit Staging(const PeerGroup& group)
      : sent(reinterpret_cast<Item*>(group.inbox(0))),
        received(reinterpret_cast<Item*>(group.inbox(1))),
        items(group.memory().inbox_bytes / static_cast<int64_t>(sizeof(Item))) {}
  static Nccl::Part PartOf(Item* first, int64_t count) {
    return {first, std::max<int64_t>(count, 0) * static_cast<int64_t>(sizeof(Item))};
  }
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ALL_REDUCE_ITEMS_H_
