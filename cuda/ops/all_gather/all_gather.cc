#include "cc/ops/all_gather/all_gather.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_exchange.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/all_reduce/items.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

// Items [first, first + count) of each rank's columns, as far as it has as many. For hosts and
// kernels.
struct Piece {
  int64_t rows, width, first, count;
  int ranks;

  constexpr int64_t Begin(int rank) const { return ops::GatherBegin(width, rank, ranks); }
  constexpr int64_t Columns(int rank) const { return Begin(rank + 1) - Begin(rank); }
  constexpr int64_t Size(int rank) const {
    const int64_t left = rows * Columns(rank) - first;
    return left < 0 ? 0 : left < count ? left : count;
  }
};

// Those of rank r are parts[r * count ...].
template <typename Item>
PAGEMILL_DEVICE void PlaceParts(const Item* parts, const Rows<Item>& y, const Piece& piece) {
  for (int r = 0; r < piece.ranks; ++r) {
    const int64_t begin = piece.Begin(r), columns = piece.Columns(r);
    ForItems(piece.Size(r), [&](int64_t i) {
      const int64_t at = piece.first + i;
      y[at / columns][begin + at % columns] = parts[r * piece.count + i];
    });
  }
}

template <typename Item>
PAGEMILL_KERNEL GatherColumns(Items<const Item> x, Rows<Item> y, Piece piece, PeerMemory peers) {
  Exchange exchange(peers);
  ForItems(piece.Size(peers.rank), [&](int64_t i) {
    const Item item = x[piece.first + i];
    for (int r = 0; r < peers.num_ranks; ++r) {
      exchange.Outbox<Item>(r)[peers.rank * piece.count + i] = item;
    }
  });
  exchange.Meet();
  PlaceParts(exchange.Inbox<Item>(), y, piece);
  exchange.Finish();
}

template <typename Item>
PAGEMILL_KERNEL PlaceColumns(const Item* parts, Rows<Item> y, Piece piece) {
  PlaceParts(parts, y, piece);
}

// A piece, of which NCCL moves the bytes.
template <typename Item>
void GatherByNccl(GpuStream& stream, Items<const Item> x, Rows<Item> y, const Piece& piece) {
  const Staging<Item> staging(*stream.peers());
  const int64_t own = piece.Size(stream.peers()->memory().rank);
  Launch(stream, ShapeOfItems(own), CopyItems<Item>, x, piece.first,
         Items<Item>{staging.sent, own, 0}, 0, own);
  std::array<Nccl::Part, kMaxPeers> sends, receives;
  for (int r = 0; r < piece.ranks; ++r) {
    const auto at = static_cast<size_t>(r);
    sends[at] = staging.PartOf(staging.sent, own);
    receives[at] = staging.PartOf(staging.received + r * piece.count, piece.Size(r));
  }
  const auto num_ranks = static_cast<size_t>(piece.ranks);
  stream.Exchange(std::span(sends).first(num_ranks), std::span(receives).first(num_ranks));
  Launch(stream, ShapeOfItems(piece.count), PlaceColumns<Item>, staging.received, y, piece);
}

template <typename Item>
void Gather(GpuStream& stream, Items<const Item> x, Rows<Item> y, int64_t rows, int64_t width) {
  const PeerMemory& peers = stream.peers()->memory();
  const int64_t most = peers.inbox_bytes / static_cast<int64_t>(sizeof(Item)) / peers.num_ranks;
  const int64_t count = rows * ((width + peers.num_ranks - 1) / peers.num_ranks);  // of a rank
  for (int64_t first = 0; first < count; first += most) {
    const Piece piece = {rows, width, first, std::min(most, count - first), peers.num_ranks};
    if (stream.peers()->nccl() != nullptr) {
      GatherByNccl(stream, x, y, piece);
    } else {
      Launch(stream, ShapeOfItems(piece.count), GatherColumns<Item>, x, y, piece, peers);
    }
  }
}

template <typename T>
void Run(const TensorView& x, const TensorView& y, GpuStream& stream) {
  const int64_t ranks = stream.peers() == nullptr ? 1 : stream.peers()->memory().num_ranks;
  // Columns of a rank, if all have as many.
  const int64_t part = y.RowElements() % ranks == 0 ? y.RowElements() / ranks : 1;
  WithItems<T>(x, y, part, [&]<typename Item>(Item) {
    const int64_t width = y.RowElements() / static_cast<int64_t>(sizeof(Item) / sizeof(T));
    const auto from = ItemsOf<const Item>(x);
    if (stream.peers() != nullptr) return Gather(stream, from, RowsOf<Item>(y), x.shape[0], width);
    const int64_t count = x.shape[0] * width;
    Launch(stream, ShapeOfItems(count), CopyItems<Item>, from, 0, ItemsOf<Item>(y), 0, count);
  });
}

void RunByType(const ops::OpCall& call, ops::KernelContext& context) {
  WithActType(call.inputs[0].dtype, [&]<typename T>(T) {
    Run<T>(call.inputs[0], call.outputs[0], static_cast<GpuStream&>(*context.stream));
  });
}

constexpr ops::Kernel kKernels[] = {{"all_gather", "peer_memory", 10, AmongPeers, RunByType}};

}  // namespace

std::span<const ops::Kernel> AllGatherKernels() { return kKernels; }

}  // namespace pagemill::gpu
