#include "cuda/ops/linear/wgmma_decoded.h"

#include <cstddef>
#include <optional>
#include <type_traits>

#include "cc/tensor/dtype.h"
#include "cc/tensor/quantized.h"
#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/gpu_wgmma.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/linear/awq_tiles.h"
#include "cuda/ops/linear/packed_weights.h"
#include "cuda/ops/linear/stage_ring.h"
#include "cuda/ops/linear/tensor_core_tiles.h"
#include "cuda/ops/linear/weights.h"
#include "cuda/ops/linear/wgmma_shares.h"

namespace pagemill::gpu {
namespace {

using wgmma_shares::FirstOutput, wgmma_shares::ForWork, wgmma_shares::Gather;
using wgmma_shares::kBytesOfSums, wgmma_shares::kConsumers, wgmma_shares::kConsumerWarps;
using wgmma_shares::kOutputs, wgmma_shares::Results, wgmma_shares::Shares, wgmma_shares::Sums;
using wgmma_shares::Work;

// Two warpgroups multiply. Two teams, a warpgroup each, take turns with steps: they decode weights
// and have x copied.
constexpr int kTeams = 2, kTeamWarps = kWarpgroupThreads / 32;
constexpr int kThreads = kConsumers + kTeams * kWarpgroupThreads;
// A step has a span of columns, in tiles as wide as products read them.
constexpr int kColumns = kSpanChunks * kChunkColumns;
constexpr int kTileColumns = kTileRowBytes / static_cast<int>(sizeof(BFloat16));
constexpr int kTilesOfStep = kColumns / kTileColumns;
constexpr int kMatricesOfLaunch = 4;

// Threads that decode need more of the 65,536 registers than those that multiply.
struct SomeTile {
  static constexpr int kParts = 1, kRows = 64, kStages = 4;
  static constexpr int kConsumerRegisters = 112, kTeamRegisters = 144;
};
struct MoreTile {
  static constexpr int kParts = 1, kRows = kMostDecodedRows, kStages = 3;
  static constexpr int kConsumerRegisters = 120, kTeamRegisters = 136;
};

template <typename T>
struct Shared {
  uint8_t w[T::kStages][kTilesOfStep][kOutputs<T> * kTileRowBytes];
  uint8_t x[T::kStages][kTilesOfStep][T::kRows * kTileRowBytes];
  uint64_t full[T::kStages], empty[T::kStages];
};

template <typename W>
struct Params {
  TileMap x;
  int32_t rows;
  Shares shares;
  W weights[kMatricesOfLaunch];
  Results results[kMatricesOfLaunch];

  template <typename Visit>
  void ForData(const Visit& visit) const {
    visit(shares.sums);
    visit(shares.counters);
    for (int i = 0; i < shares.num_products; ++i) {
      visit(weights[i].data);
      results[i].ForData(visit);
    }
  }
};

// By a team: the steps of the block that are its own. A lane has eight columns of each chunk of a
// step, of kRowsOfLane outputs.
template <typename W, typename T>
PAGEMILL_DEVICE void Decode(const Params<W>& p, Shared<T>& shared) {
  static_assert(kTeams <= T::kStages);  // else a team may wait for the phase before the last
  constexpr int kRowsOfLane = kOutputs<T> / (8 * kTeamWarps);
  const int warp = Warp() - kConsumerWarps, team = warp / kTeamWarps;
  // Quarters of a warp store rows that differ in bit 2, to other banks.
  const int group = Lane() / 4, in_group = group / 2 + group % 2 * 4;
  const int first_row = warp % kTeamWarps * (8 * kRowsOfLane) + in_group;
  const bool copies = Lane() == 0 && warp % kTeamWarps == 0;
  int steps_before = 0;  // of this block
  ForWork(p.shares, [&](const Work& work) {
    const W& weights = p.weights[work.product];
    const int outputs = p.results[work.product].outputs;
    const int first_output = FirstOutput<T>(p.shares, work);
    typename W::Row rows[kRowsOfLane];
    PAGEMILL_UNROLL
    for (int r = 0; r < kRowsOfLane; ++r) {
      const int output = first_output + first_row + 8 * r;
      rows[r] = weights.At(/*matrix=*/0, output < outputs ? output : outputs - 1);
    }
    const bool in_quads = first_output + kOutputs<T> <= outputs && rows[0].HasQuads();
    const int first = work.begin + (steps_before + team) % kTeams;
    const int before = steps_before - work.begin;
    steps_before += work.end - work.begin;
    if (first >= work.end) return;
    using Span = WeightSpan<W, kRowsOfLane>;
    Span next(rows, static_cast<unsigned>(first), in_quads);
    AwaitInputs();  // weights do not depend on them
    for (int step = first; step < work.end; step += kTeams) {
      Span span = next;
      const int behind = step + kTeams < work.end ? step + kTeams : step;
      next = Span(rows, static_cast<unsigned>(behind), in_quads);
      span.ComputeScales(rows);
      const int stage = (before + step) % T::kStages;
      const auto parity = static_cast<uint32_t>((before + step) / T::kStages % 2);
      AwaitPhase(&shared.empty[stage], parity ^ 1);
      if (copies) {
        ArriveExpecting(&shared.full[stage], sizeof(shared.x[0]));
        for (int i = 0; i < kTilesOfStep; ++i) {
          LoadTile(shared.x[stage][i], p.x, step * kColumns + i * kTileColumns, /*row=*/0,
                   /*matrix=*/0, &shared.full[stage]);
        }
      }
      PAGEMILL_UNROLL
      for (int i = 0; i < kSpanChunks; ++i) {
        constexpr int kChunksOfTile = kTileColumns / kChunkColumns;
        const int piece = i % kChunksOfTile * (kChunkColumns / kWeightsAtOnce) + Lane() % 4;
        PAGEMILL_UNROLL
        for (int r = 0; r < kRowsOfLane; ++r) {
          uint8_t* const tile = shared.w[stage][i / kChunksOfTile];
          *reinterpret_cast<Bf16Columns*>(tile + TilePiece(first_row + 8 * r, piece)) =
              span.InBf16(rows, r, i);
        }
      }
      ShowProducts();
      SyncWarp(AllLanes());
      if (Lane() == 0) Arrive(&shared.full[stage]);
    }
  });
  AwaitInputs();  // also of a team without steps
}

template <typename W, typename T>
PAGEMILL_DEVICE void Multiply(const Params<W>& p, Shared<T>& shared) {
  const int warpgroup = static_cast<int>(ThreadIndex().x) / kWarpgroupThreads;
  StageRing<T::kStages> ring;
  ForWork(p.shares, [&](const Work& work) {
    Sums<T> sums;
    int before = -1;  // the stage that is still multiplied
    for (int step = work.begin; step < work.end; ++step) {
      AwaitPhase(&shared.full[ring.stage], ring.parity);
      ShowProducts();
      PAGEMILL_UNROLL
      for (int i = 0; i < kTilesOfStep; ++i) {
        StartProduct<T::kRows, kConsumers / kWarpgroupThreads>(
            shared.w[ring.stage][i], shared.x[ring.stage][i], warpgroup, sums.values);
      }
      CommitProducts();
      AwaitProducts<1>(sums.values);
      if (before >= 0) Release(&shared.empty[before]);
      before = ring.stage;
      ring.Next();
    }
    AwaitProducts<0>(sums.values);
    Release(&shared.empty[before]);
    if (!work.IsWhole(p.shares) && !Gather(p.shares, work, sums)) return;
    sums.StoreResults(p.results[work.product], FirstOutput<T>(p.shares, work), p.rows);
  });
}

template <typename W, typename T>
PAGEMILL_KERNEL_OF(kThreads, 1) MultiplyDecoded(const PAGEMILL_GRID_CONSTANT Params<W> p) {
  LetNextBegin();
  auto& shared = *AlignedShared<Shared<T>>();
  if (ThreadIndex().x == 0) {
    for (int i = 0; i < T::kStages; ++i) {
      InitBarrier(&shared.full[i], kTeamWarps + 1);  // the team, and x
      InitBarrier(&shared.empty[i], kConsumerWarps);
    }
    ShowBarriers();
  }
  SyncBlock();
  if (ThreadIndex().x < kConsumers) {
    GiveRegisters<T::kConsumerRegisters>();
    AwaitInputs();
    Multiply(p, shared);
  } else {
    TakeRegisters<T::kTeamRegisters>();
    Decode(p, shared);
  }
}

template <typename T, typename W>
void Run(Params<W> p, const TensorView& x, GpuStream& stream) {
  constexpr int64_t kSharedBytes = sizeof(Shared<T>) + kSharedAlignment;
  static_assert(kSharedBytes <= kMostSharedBytes);
  for (int i = 0; i < p.shares.num_products; ++i) {
    p.shares.first_tile[i + 1] =
        p.shares.first_tile[i] + static_cast<int32_t>(DivideUp(p.results[i].outputs, kOutputs<T>));
  }
  const auto error = MakeTileMap({.data = x.data,
                                  .type = ProductType::kBf16,
                                  .matrices = 1,
                                  .rows = x.shape[0],
                                  .columns = x.RowElements(),
                                  .matrix_bytes = x.shape[0] * x.row_stride_bytes,
                                  .row_bytes = x.row_stride_bytes,
                                  .tile_rows = T::kRows},
                                 p.x);
  if (error != PAGEMILL_GPU(Success)) return stream.Check(error);
  Launch(stream,
         {.blocks = {static_cast<uint32_t>(p.shares.Blocks(stream))},
          .threads = {kThreads},
          .shared_bytes = kSharedBytes,
          .early = true},
         MultiplyDecoded<W, T>, p);
}

// Others are decoded by fewer instructions, or by so many that warps would wait for them.
template <typename W>
inline constexpr bool kAreDecoded = false;
template <>
inline constexpr bool kAreDecoded<AwqTiles> = true;
template <QuantizedLayout kLayout>
inline constexpr bool kAreDecoded<PackedWeights<kLayout, 4>> = kLayout != QuantizedLayout::kAwq;
template <DType kFormat, bool kAligned>
inline constexpr bool kAreDecoded<StoredWeights<kFormat, kAligned>> =
    kAligned && (kFormat == DType::kQ4_K || kFormat == DType::kQ6_K || kFormat == DType::kQ8_0);

// Calls body(weights) if kernels read them in such a format, with a scale for each chunk.
template <typename Body>
void WithDecoded(const TensorView& w, const Body& body) {
  WithShapedMatrix(w, [&]<typename W>(const W& weights) {
    if constexpr (kAreDecoded<W>) {
      if constexpr (requires { weights.groups; }) {
        if (weights.groups != nullptr) return;
      }
      body(weights);
    }
  });
}

template <typename W>
std::optional<W> ReadAs(const TensorView& w) {
  std::optional<W> read;
  WithDecoded(w, [&]<typename Other>(const Other& weights) {
    if constexpr (std::is_same_v<W, Other>) read = weights;
  });
  return read;
}

bool AreDecoded(const TensorView& w) {
  bool are_decoded = false;
  WithDecoded(w, [&](const auto&) {
    are_decoded = w.shape[0] > 0 && w.shape[1] > 0 && w.shape[1] % kColumns == 0;
  });
  return are_decoded;
}

}  // namespace

bool AreDecodedRows(const TensorView& x, const TensorView& w, device::Stream& stream) {
  return x.shape[0] >= kFewestDecodedRows && x.shape[0] <= kMostDecodedRows &&
         HasWgmma(static_cast<GpuStream&>(stream).capabilities()) && AreDecoded(w);
}

int64_t DecodedRowsBytes(int64_t rows, const TensorView& w) {
  if (rows < kFewestDecodedRows || !AreDecoded(w)) return 0;
  return rows <= SomeTile::kRows ? kBytesOfSums<SomeTile> : kBytesOfSums<MoreTile>;
}

void MultiplyDecodedRows(const TensorView& x, std::span<const Product> products,
                         std::byte* workspace, device::Stream& stream) {
  GpuStream& gpu = static_cast<GpuStream&>(stream);
  gpu.MakeCurrent();  // the driver describes x to the current GPU
  while (!products.empty()) {
    size_t taken = 0;
    WithDecoded(products[0].w, [&]<typename W>(const W&) {
      Params<W> p = {.x = {},
                     .rows = static_cast<int32_t>(x.shape[0]),
                     .shares = {.steps = static_cast<int32_t>(x.RowElements() / kColumns),
                                .sums = reinterpret_cast<float*>(workspace),
                                .counters = gpu.counters(),
                                .num_products = 0,
                                .first_tile = {}},
                     .weights = {},
                     .results = {}};
      int32_t& count = p.shares.num_products;
      for (; taken < products.size() && count < kMatricesOfLaunch; ++taken, ++count) {
        const std::optional<W> weights = ReadAs<W>(products[taken].w);
        if (!weights) break;
        p.weights[count] = *weights;
        p.results[count] = Results::Of(products[taken]);
      }
      if (p.rows <= SomeTile::kRows) {
        Run<SomeTile>(p, x, gpu);
      } else {
        Run<MoreTile>(p, x, gpu);
      }
    });
    PAGEMILL_CHECK(taken > 0);
    products = products.subspan(taken);
  }
}

}  // namespace pagemill::gpu
