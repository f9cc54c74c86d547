// Sums over ranks through memory that they write for each other (cuda/gpu_exchange.h), added in
// rank order by every kernel, so that all give the same bits:
//
//   one_shot     each rank sends everything to all, and adds everything: one exchange, `ranks`
//                times the data
//   two_shot     each rank adds a part of the data, and sends the sums to all: two exchanges, twice
//                the data
//   peer_memory  one of the two, whichever is faster for a step's rows
//
// Without access to each other's memory, NCCL moves what all of them would send.
#include "cc/ops/all_reduce/all_reduce.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_exchange.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/all_reduce/items.h"
#include "cuda/ops/all_reduce/rank_sum.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

// Items [first, first + count).
template <typename Item>
PAGEMILL_KERNEL SumAll(Items<const Item> x, Items<Item> y, int64_t first, int64_t count,
                       PeerMemory peers) {
  Exchange exchange(peers);
  ForItems(count, [&](int64_t i) {
    const Item item = x[first + i];
    for (int r = 0; r < peers.num_ranks; ++r) {
      exchange.Outbox<Item>(r)[peers.rank * count + i] = item;
    }
  });
  exchange.Meet();
  const Item* const inbox = exchange.Inbox<Item>();
  ForItems(count, [&](int64_t i) { y[first + i] = SumOf(inbox + i, count, peers.num_ranks); });
  exchange.Finish();
}

// Items [first, first + count), of which rank r adds [r * part, (r + 1) * part).
template <typename Item>
PAGEMILL_KERNEL SumParts(Items<const Item> x, Items<Item> y, int64_t first, int64_t count,
                         int64_t part, PeerMemory peers) {
  Exchange exchange(peers);
  const auto size_of = [&](int rank) {
    const int64_t left = count - rank * part;
    return left < part ? left : part;
  };
  for (int r = 0; r < peers.num_ranks; ++r) {
    Item* const outbox = exchange.Outbox<Item>(r) + peers.rank * part;
    ForItems(size_of(r), [&](int64_t i) { outbox[i] = x[first + r * part + i]; });
  }
  exchange.Meet();
  const Item* const parts = exchange.Inbox<Item>();
  ForItems(size_of(peers.rank), [&](int64_t i) {
    const Item sum = SumOf(parts + i, part, peers.num_ranks);
    for (int r = 0; r < peers.num_ranks; ++r) {
      exchange.Outbox<Item>(r)[peers.rank * part + i] = sum;
    }
  });
  exchange.Meet();
  const Item* const sums = exchange.Inbox<Item>();
  for (int r = 0; r < peers.num_ranks; ++r) {
    ForItems(size_of(r), [&](int64_t i) { y[first + r * part + i] = sums[r * part + i]; });
  }
  exchange.Finish();
}

// sums[i] = the sum of parts[r * part + i] over ranks r
template <typename Item>
PAGEMILL_KERNEL AddParts(const Item* parts, int64_t part, int ranks, Item* sums, int64_t count) {
  ForItems(count, [&](int64_t i) { sums[i] = SumOf(parts + i, part, ranks); });
}

// As many launches as the inboxes need.
template <typename Item>
void Sum(GpuStream& stream, Items<const Item> x, Items<Item> y, int64_t count, Way way,
         const PeerMemory& peers) {
  const int64_t inbox_items = peers.inbox_bytes / static_cast<int64_t>(sizeof(Item));
  const int64_t most_of_rank = inbox_items / peers.num_ranks;
  const int64_t most = way == Way::kOneShot ? most_of_rank : most_of_rank * peers.num_ranks;
  for (int64_t first = 0; first < count; first += most) {
    const int64_t piece = std::min(most, count - first);
    if (way == Way::kOneShot) {
      Launch(stream, ShapeOfItems(piece), SumAll<Item>, x, y, first, piece, peers);
    } else {
      const int64_t part = (piece + peers.num_ranks - 1) / peers.num_ranks;
      Launch(stream, ShapeOfItems(part), SumParts<Item>, x, y, first, piece, part, peers);
    }
  }
}

// Two shots, of which NCCL moves the bytes.
template <typename Item>
void SumByNccl(GpuStream& stream, Items<const Item> x, Items<Item> y, int64_t count) {
  const Staging<Item> staging(*stream.peers());
  const int ranks = stream.peers()->memory().num_ranks, rank = stream.peers()->memory().rank;
  const auto num_ranks = static_cast<size_t>(ranks);
  const int64_t most = staging.items / ranks * ranks;
  for (int64_t first = 0; first < count; first += most) {
    const int64_t piece = std::min(most, count - first), part = (piece + ranks - 1) / ranks;
    const auto size_of = [&](int64_t r) { return std::clamp<int64_t>(piece - r * part, 0, part); };
    std::array<Nccl::Part, kMaxPeers> sends, receives;
    Launch(stream, ShapeOfItems(piece), CopyItems<Item>, x, first,
           Items<Item>{staging.sent, piece, 0}, 0, piece);
    for (int r = 0; r < ranks; ++r) {
      const auto at = static_cast<size_t>(r);
      sends[at] = staging.PartOf(staging.sent + r * part, size_of(r));
      receives[at] = staging.PartOf(staging.received + r * part, size_of(rank));
    }
    stream.Exchange(std::span(sends).first(num_ranks), std::span(receives).first(num_ranks));
    Launch(stream, ShapeOfItems(size_of(rank)), AddParts<Item>, staging.received, part, ranks,
           staging.sent, size_of(rank));
    for (int r = 0; r < ranks; ++r) {
      const auto at = static_cast<size_t>(r);
      sends[at] = staging.PartOf(staging.sent, size_of(rank));
      receives[at] = staging.PartOf(staging.received + r * part, size_of(r));
    }
    stream.Exchange(std::span(sends).first(num_ranks), std::span(receives).first(num_ranks));
    Launch(stream, ShapeOfItems(piece), CopyItems<Item>,
           Items<const Item>{staging.received, piece, 0}, 0, y, first, piece);
  }
}

template <typename T>
void Run(const TensorView& x, const TensorView& y, GpuStream& stream, Way way) {
  WithItems<T>(x, y, x.RowElements(), [&]<typename Item>(Item) {
    const int64_t count = x.Elements() / static_cast<int64_t>(sizeof(Item) / sizeof(T));
    const auto from = ItemsOf<const Item>(x);
    const auto to = ItemsOf<Item>(y);
    const PeerGroup* const peers = stream.peers();
    if (peers == nullptr) {
      if (x.data == y.data) return;
      Launch(stream, ShapeOfItems(count), CopyItems<Item>, from, 0, to, 0, count);
    } else if (peers->nccl() != nullptr) {
      SumByNccl(stream, from, to, count);
    } else {
      Sum(stream, from, to, count, way, peers->memory());
    }
  });
}

void RunIn(const ops::OpCall& call, ops::KernelContext& context, Way way) {
  WithActType(call.inputs[0].dtype, [&]<typename T>(T) {
    Run<T>(call.inputs[0], call.outputs[0], static_cast<GpuStream&>(*context.stream), way);
  });
}

void RunOneShot(const ops::OpCall& call, ops::KernelContext& context) {
  RunIn(call, context, Way::kOneShot);
}
void RunTwoShot(const ops::OpCall& call, ops::KernelContext& context) {
  RunIn(call, context, Way::kTwoShot);
}
void RunFaster(const ops::OpCall& call, ops::KernelContext& context) {
  RunIn(call, context, FasterWay(call.inputs[0], call.attributes->GetInt("ranks", 1)));
}

constexpr ops::Kernel kKernels[] = {{"all_reduce", "peer_memory", 10, AmongPeers, RunFaster},
                                    {"all_reduce", "one_shot", 5, AmongPeers, RunOneShot},
                                    {"all_reduce", "two_shot", 4, AmongPeers, RunTwoShot}};

}  // namespace

std::span<const ops::Kernel> AllReduceKernels() { return kKernels; }

}  // namespace pagemill::gpu
