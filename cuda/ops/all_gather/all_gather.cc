#include "cc/ops/all_gather/all_gather.h"

#include <algorithm>
#include <cstdint>

#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_exchange.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/all_reduce/items.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

// Items [first, first + count) of each rank's columns, as far as it has as many, to all ranks.
template <typename Item>
PAGEMILL_KERNEL GatherColumns(Items<const Item> x, Rows<Item> y, int64_t rows, int64_t width,
                              int64_t first, int64_t count, PeerMemory peers) {
  Exchange exchange(peers);
  const auto columns_of = [&](int rank) {
    return ops::GatherBegin(width, rank + 1, peers.num_ranks) -
           ops::GatherBegin(width, rank, peers.num_ranks);
  };
  const auto size_of = [&](int rank) {
    const int64_t left = rows * columns_of(rank) - first;
    return left < count ? left : count;
  };
  ForItems(size_of(peers.rank), [&](int64_t i) {
    const Item item = x[first + i];
    for (int r = 0; r < peers.num_ranks; ++r) {
      exchange.Outbox<Item>(r)[peers.rank * count + i] = item;
    }
  });
  exchange.Meet();
  const Item* const inbox = exchange.Inbox<Item>();
  for (int r = 0; r < peers.num_ranks; ++r) {
    const int64_t begin = ops::GatherBegin(width, r, peers.num_ranks), columns = columns_of(r);
    ForItems(size_of(r), [&](int64_t i) {
      y[(first + i) / columns][begin + (first + i) % columns] = inbox[r * count + i];
    });
  }
  exchange.Finish();
}

template <typename T>
void Run(const TensorView& x, const TensorView& y, device::Stream& stream) {
  const PeerGroup* const group = static_cast<GpuStream&>(stream).peers();
  const int64_t ranks = group == nullptr ? 1 : group->memory().num_ranks;
  // Whole items of each rank begin at whole items.
  const int64_t part = y.RowElements() % ranks == 0 ? y.RowElements() / ranks : 1;
  WithItems<T>(x, y, part, [&]<typename Item>(Item) {
    constexpr auto kSize = static_cast<int64_t>(sizeof(Item) / sizeof(T));
    const auto from = ItemsOf<const Item>(x);
    const int64_t rows = x.shape[0], width = y.RowElements() / kSize;
    if (group == nullptr) {
      const int64_t count = rows * width;
      return Launch(stream, ShapeOfItems(count), CopyItems<Item>, from, ItemsOf<Item>(y), count);
    }
    const PeerMemory& peers = group->memory();
    const int64_t most = peers.inbox_bytes / static_cast<int64_t>(sizeof(Item)) / ranks;
    const int64_t count = rows * ((width + ranks - 1) / ranks);  // of the rank that has most
    for (int64_t first = 0; first < count; first += most) {
      const int64_t piece = std::min(most, count - first);
      Launch(stream, ShapeOfItems(piece), GatherColumns<Item>, from, RowsOf<Item>(y), rows, width,
             first, piece, peers);
    }
  });
}

void RunByType(const ops::OpCall& call, ops::KernelContext& context) {
  WithActType(call.inputs[0].dtype, [&]<typename T>(T) {
    Run<T>(call.inputs[0], call.outputs[0], *context.stream);
  });
}

constexpr ops::Kernel kKernels[] = {{"all_gather", "peer_memory", 10, AmongPeers, RunByType}};

}  // namespace

std::span<const ops::Kernel> AllGatherKernels() { return kKernels; }

}  // namespace pagemill::gpu
