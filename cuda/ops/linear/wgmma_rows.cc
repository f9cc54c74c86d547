#include "cuda/ops/linear/wgmma_rows.h"

#include "cc/ops/linear/linear.h"
#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/gpu_wgmma.h"
#include "cuda/ops/linear/f8_stages.h"
#include "cuda/ops/linear/rounding_scale.h"
#include "cuda/ops/linear/stage_ring.h"
#include "cuda/ops/linear/wgmma_shares.h"

namespace pagemill::gpu {
namespace {

using wgmma_shares::FirstOutput, wgmma_shares::ForWork, wgmma_shares::Gather;
using wgmma_shares::kBytesOfSums, wgmma_shares::kConsumers, wgmma_shares::kConsumerWarps;
using wgmma_shares::kOutputs, wgmma_shares::Results, wgmma_shares::Shares, wgmma_shares::Sums;
using wgmma_shares::Work;

// A block stays on its multiprocessor. Two warpgroups multiply. Of two others, the last warp copies
// weights, without waiting for the kernel in front, so that they are under way while that one ends;
// the first ones round rows of x.
constexpr int kThreads = 2 * kConsumers;
constexpr int kMostRounderWarps = kThreads / 32 - kConsumerWarps - 1;
constexpr int kColumns = kTileRowBytes;  // of a step
static_assert(kColumns == kF8Columns);

// For one request or few. Registers for two blocks leave others to the kernel behind, which begins
// beside this one.
struct FewTile {
  static constexpr int kParts = 1, kRows = 16, kStages = 12, kBlocks = 2;
};
struct ManyTile {
  static constexpr int kParts = 1, kRows = kMostWgmmaRows, kStages = 9, kBlocks = 1;
};
// For matrices of many outputs, of which each reads x: that is as many bytes as the weights of 64.
struct WideTile {
  static constexpr int kParts = 2, kRows = kMostWgmmaRows, kStages = 5, kBlocks = 1;
  // Of 65,536. Sums take 128 of a consumer's.
  static constexpr int kProducerRegisters = 72, kConsumerRegisters = 184;
};

template <typename T>
constexpr bool kMovesRegisters = T::kParts > 1;
// A rounder that has a stage for its next step before all others had one would not know whether the
// phase that it waits for is over, or the one before the last: both have the same parity.
template <typename T>
constexpr int kRounderWarps = T::kStages < kMostRounderWarps ? T::kStages : kMostRounderWarps;

template <typename T>
struct Shared {
  uint8_t w[T::kStages][kOutputs<T> * kTileRowBytes];
  uint8_t x[T::kStages][T::kRows * kTileRowBytes];
  float x_scales[T::kStages][T::kRows];
  uint64_t full[T::kStages], empty[T::kStages];
};

struct Params {
  Rows<const BFloat16> x;  // rows are aligned to 16 bytes
  int32_t rows;
  Shares shares;
  F8StageScales scales[ops::kMaxMatrices];
  Results results[ops::kMaxMatrices];
  TileMap weights[ops::kMaxMatrices];

  template <typename Visit>
  void ForData(const Visit& visit) const {
    visit(x.data);
    visit(shares.sums);
    visit(shares.counters);
    for (int i = 0; i < shares.num_products; ++i) {
      visit(scales[i].data);
      results[i].ForData(visit);
    }
  }
};

// By one thread.
template <typename T>
PAGEMILL_DEVICE void CopyWeights(const Params& p, Shared<T>& shared) {
  StageRing<T::kStages> ring;
  ForWork(p.shares, [&](const Work& work) {
    for (int step = work.begin; step < work.end; ++step) {
      AwaitPhase(&shared.empty[ring.stage], ring.parity ^ 1);
      ArriveExpecting(&shared.full[ring.stage], sizeof(shared.w[0]));
      LoadTile(shared.w[ring.stage], p.weights[work.product], step * kColumns,
               FirstOutput<T>(p.shares, work), /*matrix=*/0, &shared.full[ring.stage]);
      ring.Next();
    }
  });
}

// By kRounderWarps<T>, which take turns with steps; half a warp rounds a row of a step. Rows that x does
// not have stay what they are: their sums are not stored.
template <typename T>
PAGEMILL_DEVICE void RoundRows(const Params& p, Shared<T>& shared) {
  constexpr int kLanes = kColumns / EightColumns::kCount;
  constexpr int kRowsAtOnce = 32 / kLanes, kTurns = T::kRows > 16 ? 4 : 2;
  const int warp = Warp() - kConsumerWarps, in_row = Lane() % kLanes, of_lane = Lane() / kLanes;
  StageRing<T::kStages> ring;
  int turn = 0;
  ForWork(p.shares, [&](const Work& work) {
    for (int step = work.begin; step < work.end; ++step, ring.Next()) {
      const bool is_own = turn == warp;
      turn = turn + 1 == kRounderWarps<T> ? 0 : turn + 1;
      if (!is_own) continue;
      AwaitPhase(&shared.empty[ring.stage], ring.parity ^ 1);
      uint8_t* const stage = shared.x[ring.stage];
      const int column = step * kColumns + in_row * EightColumns::kCount;
      for (int first = of_lane; first - of_lane < p.rows; first += kTurns * kRowsAtOnce) {
        EightColumns::Stored stored[kTurns];
        PAGEMILL_UNROLL
        for (int i = 0; i < kTurns; ++i) {
          const int row = first + i * kRowsAtOnce;
          stored[i] = {};
          if (row >= p.rows) continue;
          stored[i] = *reinterpret_cast<const EightColumns::Stored*>(p.x[row] + column);
        }
        PAGEMILL_UNROLL
        for (int i = 0; i < kTurns; ++i) {
          const int row = first + i * kRowsAtOnce;
          if (row - of_lane >= p.rows) break;  // the other half of the warp has none either
          const auto columns = EightColumns::Of(stored[i]);
          const float largest = WarpReduce(columns.Largest(), LargerMagnitude(), kLanes);
          const auto scale = RoundingScale::Of(largest, kLargestF8E4M3);
          if (row >= p.rows) continue;
          columns.StoreRounded(scale.inverse, stage + TilePiece(row, in_row / 2) + in_row % 2 * 8);
          if (in_row == 0) shared.x_scales[ring.stage][row] = scale.scale;
        }
      }
      ShowProducts();
      SyncWarp(AllLanes());
      if (Lane() == 0) Arrive(&shared.full[ring.stage]);
    }
  });
}

template <typename T>
PAGEMILL_DEVICE void Multiply(const Params& p, Shared<T>& shared) {
  constexpr int kN = T::kRows;
  const int warpgroup = static_cast<int>(ThreadIndex().x) / kWarpgroupThreads;
  StageRing<T::kStages> ring;
  ForWork(p.shares, [&](const Work& work) {
    const F8StageScales& of_w = p.scales[work.product];
    const Results& results = p.results[work.product];
    const int first_output = FirstOutput<T>(p.shares, work);
    int scales[T::kParts][2];  // of a step
    PAGEMILL_UNROLL
    for (int part = 0; part < T::kParts; ++part) {
      PAGEMILL_UNROLL
      for (int second = 0; second < 2; ++second) {
        const int output = first_output + Sums<T>::Output(part, second);
        const int existing = output < results.outputs ? output : results.outputs - 1;
        scales[part][second] = of_w.IndexOf(existing, work.begin);
      }
    }
    Sums<T> totals;
    for (int step = work.begin; step < work.end; ++step) {
      float w_scales[T::kParts][2];
      PAGEMILL_UNROLL
      for (int part = 0; part < T::kParts; ++part) {
        PAGEMILL_UNROLL
        for (int second = 0; second < 2; ++second) {
          w_scales[part][second] = of_w.data[scales[part][second]];
          scales[part][second] += of_w.step;
        }
      }
      AwaitPhase(&shared.full[ring.stage], ring.parity);
      ShowProducts();
      float sums[T::kParts][kN / 2] = {};
      StartProduct<kN, kConsumers / kWarpgroupThreads, ProductType::kF8E4M3>(
          shared.w[ring.stage], shared.x[ring.stage], warpgroup, sums);
      CommitProducts();
      const ScalesOfLane<kN> x_scales(shared.x_scales[ring.stage]);
      AwaitProducts<0>(sums);
      Release(&shared.empty[ring.stage]);
      x_scales.AddScaled(sums, w_scales, totals.values);
      ring.Next();
    }
    if (!work.IsWhole(p.shares) && !Gather(p.shares, work, totals)) return;
    totals.StoreResults(results, first_output, p.rows);
  });
}

template <typename T>
PAGEMILL_KERNEL_OF(kThreads, T::kBlocks)
MultiplyWgmmaRows(const PAGEMILL_GRID_CONSTANT Params p) {
  LetNextBegin();
  auto& shared = *AlignedShared<Shared<T>>();
  const int thread = static_cast<int>(ThreadIndex().x);
  if (thread == 0) {
    for (int i = 0; i < T::kStages; ++i) {
      InitBarrier(&shared.full[i], 2);  // the weights, and the warp that rounded x
      InitBarrier(&shared.empty[i], kConsumerWarps);
    }
    ShowBarriers();
  }
  SyncBlock();
  if (thread < kConsumers) {
    if constexpr (kMovesRegisters<T>) TakeRegisters<T::kConsumerRegisters>();
    AwaitInputs();
    Multiply(p, shared);
    return;
  }
  if constexpr (kMovesRegisters<T>) GiveRegisters<T::kProducerRegisters>();
  if (Warp() < kConsumerWarps + kRounderWarps<T>) {
    AwaitInputs();
    RoundRows(p, shared);
  } else {
    if (thread == kThreads - 32) CopyWeights(p, shared);
    AwaitInputs();
  }
}

template <typename T>
void Run(Params p, std::span<const Product> products, GpuStream& stream) {
  constexpr int64_t kSharedBytes = sizeof(Shared<T>) + kSharedAlignment;
  static_assert(kSharedBytes <= kMostSharedBytes);
  for (size_t i = 0; i < products.size(); ++i) {
    const auto w = F8Weights::Of(products[i].w);
    const int64_t outputs = products[i].w.shape[0];
    p.shares.first_tile[i + 1] =
        p.shares.first_tile[i] + static_cast<int32_t>(DivideUp(outputs, kOutputs<T>));
    const auto error = MakeTileMap({.data = w.data,
                                    .type = ProductType::kF8E4M3,
                                    .matrices = 1,
                                    .rows = outputs,
                                    .columns = products[i].w.shape[1],
                                    .matrix_bytes = outputs * w.row_bytes,
                                    .row_bytes = w.row_bytes,
                                    .tile_rows = kOutputs<T>},
                                   p.weights[i]);
    if (error != PAGEMILL_GPU(Success)) return stream.Check(error);
  }
  Launch(stream,
         {.blocks = {static_cast<uint32_t>(p.shares.Blocks(stream))},
          .threads = {kThreads},
          .shared_bytes = kSharedBytes,
          .early = true},
         MultiplyWgmmaRows<T>, p);
}

}  // namespace

bool FitsWgmmaRows(const device::Capabilities& caps, const TensorView& x, const TensorView& w) {
  return HasWgmma(caps.gpu) && HaveF8Stages(w) && FitsTensorCores(caps, x, w);
}

int64_t WgmmaRowsBytes(int64_t rows) {
  return rows <= FewTile::kRows ? kBytesOfSums<FewTile> : kBytesOfSums<WideTile>;
}

void MultiplyWgmmaRows(const TensorView& x, std::span<const Product> products,
                       std::byte* workspace, device::Stream& stream) {
  if (products.empty() || x.shape[0] == 0) return;
  GpuStream& gpu = static_cast<GpuStream&>(stream);
  Params p = {.x = RowsOf<const BFloat16>(x),
              .rows = static_cast<int32_t>(x.shape[0]),
              .shares = {.steps = static_cast<int32_t>(x.RowElements() / kColumns),
                         .sums = reinterpret_cast<float*>(workspace),
                         .counters = gpu.counters(),
                         .num_products = static_cast<int32_t>(products.size()),
                         .first_tile = {}},
              .scales = {},
              .results = {},
              .weights = {}};
  int64_t wide_tiles = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    p.scales[i] = F8StageScales::Of(F8Weights::Of(products[i].w));
    p.results[i] = Results::Of(products[i]);
    wide_tiles += DivideUp(p.results[i].outputs, kOutputs<WideTile>);
  }
  gpu.MakeCurrent();  // the driver describes matrices to the current GPU
  if (p.rows <= FewTile::kRows) {
    Run<FewTile>(p, products, gpu);
  } else if (2 * wide_tiles < gpu.capabilities().multiprocessors) {
    // Wide tiles would be shared by many blocks, whose sums are as large as their weights.
    Run<ManyTile>(p, products, gpu);
  } else {
    Run<WideTile>(p, products, gpu);
  }
}

}  // namespace pagemill::gpu
