#include "cuda/ops/linear/wgmma_rows.h"

#include <algorithm>

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

namespace pagemill::gpu {
namespace {

// A block stays on its multiprocessor. Two warpgroups multiply. Of two others, the last warp copies
// weights, without waiting for the kernel in front, so that they are under way while that one ends;
// the first ones round rows of x.
constexpr int kConsumers = 2 * kWarpgroupThreads, kThreads = 2 * kConsumers;
constexpr int kConsumerWarps = kConsumers / 32, kMostRounderWarps = kThreads / 32 - kConsumerWarps - 1;
constexpr int kOutputsOfPart = kConsumers / kWarpgroupThreads * kProductRows;
constexpr int kColumns = kTileRowBytes;  // of a step
static_assert(kColumns == kF8Columns);

// The multiprocessors of an H100 or H200: sums that blocks share have room for no more.
constexpr int64_t kMostBlocks = 132;
static_assert(kMostBlocks * kConsumerWarps <= GpuStream::kCounters);

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
constexpr int kOutputs = T::kParts * kOutputsOfPart;
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

struct RowsProduct {
  F8StageScales scales;
  int32_t outputs;
  const float* bias;  // or null
  Rows<BFloat16> y;
  Rows<float> wide_y;  // has data if y is f32
};

struct Params {
  Rows<const BFloat16> x;  // rows are aligned to 16 bytes
  int32_t rows, steps;     // N, K / kColumns
  int32_t num_products;
  float* sums;  // [2 * blocks, kOutputs, kRows], of a thread as they lie in its registers
  uint32_t* counters;
  RowsProduct products[ops::kMaxMatrices];
  int32_t first_tile[ops::kMaxMatrices + 1];  // of a product
  TileMap weights[ops::kMaxMatrices];

  template <typename Visit>
  void ForData(const Visit& visit) const {
    visit(x.data);
    visit(sums);
    visit(counters);
    for (int i = 0; i < num_products; ++i) {
      visit(products[i].scales.data);
      visit(products[i].bias);
      visit(products[i].y.data);
      visit(products[i].wide_y.data);
    }
  }

  // Times all blocks, a number of 32 bits: weights of a step have 16 KiB.
  PAGEMILL_DEVICE uint32_t AllSteps() const {
    return static_cast<uint32_t>(first_tile[num_products] * steps);
  }
  PAGEMILL_DEVICE int FirstStepOf(uint32_t block) const {
    return static_cast<int>(AllSteps() * block / GridSize().x);
  }
  // The one that has this step of all.
  PAGEMILL_DEVICE int BlockOf(int step) const {
    return static_cast<int>((static_cast<uint32_t>(step + 1) * GridSize().x - 1) / AllSteps());
  }
};

// The steps of a tile that a block has.
struct Work {
  int tile, product, begin, end;
};

// Calls visit(work) for that of the block.
template <typename Visit>
PAGEMILL_DEVICE void ForWork(const Params& p, const Visit& visit) {
  const int end = p.FirstStepOf(BlockIndex().x + 1);
  int product = 0;
  for (int step = p.FirstStepOf(BlockIndex().x); step < end;) {
    const int tile = step / p.steps, begin = step - tile * p.steps;
    const int left = end - tile * p.steps;
    while (tile >= p.first_tile[product + 1]) ++product;
    const Work work = {tile, product, begin, left < p.steps ? left : p.steps};
    visit(work);
    step += work.end - work.begin;
  }
}

template <typename T>
PAGEMILL_DEVICE int FirstOutput(const Params& p, const Work& work) {
  return (work.tile - p.first_tile[work.product]) * kOutputs<T>;
}

// By one thread.
template <typename T>
PAGEMILL_DEVICE void CopyWeights(const Params& p, Shared<T>& shared) {
  StageRing<T::kStages> ring;
  ForWork(p, [&](const Work& work) {
    for (int step = work.begin; step < work.end; ++step) {
      AwaitPhase(&shared.empty[ring.stage], ring.parity ^ 1);
      ArriveExpecting(&shared.full[ring.stage], sizeof(shared.w[0]));
      LoadTile(shared.w[ring.stage], p.weights[work.product], step * kColumns,
               FirstOutput<T>(p, work), /*matrix=*/0, &shared.full[ring.stage]);
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
  ForWork(p, [&](const Work& work) {
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

// The sums of a consumer. With j, i and t as gpu_wgmma.h has them, sum 4 * j + i of a part is of
// output Output(part, i / 2) of the tile and of row Row(j, i % 2).
template <typename T>
struct Sums {
  static constexpr int kCount = T::kRows / 2;
  float values[T::kParts][kCount] = {};

  PAGEMILL_DEVICE static int Output(int part, int second) {
    return part * kOutputsOfPart + Warp() * 16 + Lane() / 4 + 8 * second;
  }
  PAGEMILL_DEVICE static int Row(int j, int second) { return 8 * j + Lane() % 4 * 2 + second; }

  // Where a part of the consumer's sums lies among those of a block, a Vector of four each.
  PAGEMILL_DEVICE static Vector<float, 4>* In(float* sums, int slot, int part, int j) {
    constexpr int kVectors = T::kParts * kCount / 4;
    const int64_t at = int64_t{slot} * kVectors + part * (kCount / 4) + j;
    return reinterpret_cast<Vector<float, 4>*>(sums) + at * kConsumers + ThreadIndex().x;
  }
  PAGEMILL_DEVICE void StoreIn(float* sums, int slot) const {
    ForFours([&](int part, int j) {
      Vector<float, 4> four;
      PAGEMILL_UNROLL
      for (int i = 0; i < 4; ++i) four.values[i] = values[part][4 * j + i];
      *In(sums, slot, part, j) = four;
    });
  }
  PAGEMILL_DEVICE void AddFrom(float* sums, int slot) {
    ForFours([&](int part, int j) {
      const Vector<float, 4> four = *In(sums, slot, part, j);
      PAGEMILL_UNROLL
      for (int i = 0; i < 4; ++i) values[part][4 * j + i] += four.values[i];
    });
  }

  PAGEMILL_DEVICE void StoreResults(const RowsProduct& product, int first_output, int rows) const {
    float biases[T::kParts][2] = {};
    PAGEMILL_UNROLL
    for (int part = 0; part < T::kParts; ++part) {
      PAGEMILL_UNROLL
      for (int second = 0; second < 2; ++second) {
        const int output = first_output + Output(part, second);
        if (product.bias == nullptr || output >= product.outputs) continue;
        biases[part][second] = product.bias[output];
      }
    }
    if (product.wide_y.data != nullptr) {
      StoreRows(product.wide_y, biases, product.outputs - first_output, first_output, rows);
    } else {
      StoreRows(product.y, biases, product.outputs - first_output, first_output, rows);
    }
  }

 private:
  // `outputs` are left from the first one on.
  template <typename Y>
  PAGEMILL_DEVICE void StoreRows(const Rows<Y>& y, const float (&biases)[T::kParts][2],
                                 int outputs, int first_output, int rows) const {
    PAGEMILL_UNROLL
    for (int i = 0; i < T::kRows / 4; ++i) {
      const int row = Row(i / 2, i % 2);
      if (row >= rows) continue;
      Y* const of_row = y[row] + first_output;
      PAGEMILL_UNROLL
      for (int part = 0; part < T::kParts; ++part) {
        PAGEMILL_UNROLL
        for (int second = 0; second < 2; ++second) {
          const int output = Output(part, second);
          const float sum = values[part][i / 2 * 4 + second * 2 + i % 2] + biases[part][second];
          if (output < outputs) of_row[output] = FromFloat<Y>(sum);
        }
      }
    }
  }

  template <typename Visit>
  PAGEMILL_DEVICE static void ForFours(const Visit& visit) {
    PAGEMILL_UNROLL
    for (int part = 0; part < T::kParts; ++part) {
      PAGEMILL_UNROLL
      for (int j = 0; j < kCount / 4; ++j) visit(part, j);
    }
  }
};

// Stores the sums of some steps of a tile. True if all those of the tile are there, which `sums` are
// now.
template <typename T>
PAGEMILL_DEVICE bool Gather(const Params& p, const Work& work, Sums<T>& sums) {
  const int first = p.BlockOf(work.tile * p.steps);
  const int last = p.BlockOf(work.tile * p.steps + p.steps - 1);
  // A block may end a tile that others began, and begin one that others end.
  const auto slot_of = [&](int block) { return 2 * block + (block == first ? 1 : 0); };
  sums.StoreIn(p.sums, slot_of(static_cast<int>(BlockIndex().x)));
  if (!CountWarp(&p.counters[first * kConsumerWarps + Warp()], last - first + 1)) return false;
  sums = {};
  for (int block = first; block <= last; ++block) sums.AddFrom(p.sums, slot_of(block));
  return true;
}

template <typename T>
PAGEMILL_DEVICE void Multiply(const Params& p, Shared<T>& shared) {
  constexpr int kN = T::kRows;
  const int warpgroup = static_cast<int>(ThreadIndex().x) / kWarpgroupThreads;
  StageRing<T::kStages> ring;
  ForWork(p, [&](const Work& work) {
    const RowsProduct& product = p.products[work.product];
    const int first_output = FirstOutput<T>(p, work);
    int scales[T::kParts][2];  // of a step
    PAGEMILL_UNROLL
    for (int part = 0; part < T::kParts; ++part) {
      PAGEMILL_UNROLL
      for (int second = 0; second < 2; ++second) {
        const int output = first_output + Sums<T>::Output(part, second);
        const int existing = output < product.outputs ? output : product.outputs - 1;
        scales[part][second] = product.scales.IndexOf(existing, work.begin);
      }
    }
    Sums<T> totals;
    for (int step = work.begin; step < work.end; ++step) {
      float w_scales[T::kParts][2];
      PAGEMILL_UNROLL
      for (int part = 0; part < T::kParts; ++part) {
        PAGEMILL_UNROLL
        for (int second = 0; second < 2; ++second) {
          w_scales[part][second] = product.scales.data[scales[part][second]];
          scales[part][second] += product.scales.step;
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
      SyncWarp(AllLanes());  // all of them have read
      if (Lane() == 0) Arrive(&shared.empty[ring.stage]);
      x_scales.AddScaled(sums, w_scales, totals.values);
      ring.Next();
    }
    const bool is_whole = work.end - work.begin == p.steps;
    if (!is_whole && !Gather(p, work, totals)) return;
    totals.StoreResults(product, first_output, p.rows);
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
    p.first_tile[i + 1] = p.first_tile[i] + static_cast<int32_t>(DivideUp(outputs, kOutputs<T>));
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
  const int64_t steps = int64_t{p.first_tile[p.num_products]} * p.steps;
  const int64_t blocks =
      std::min({steps, kMostBlocks, int64_t{stream.capabilities().multiprocessors}});
  Launch(stream,
         {.blocks = {static_cast<uint32_t>(blocks)},
          .threads = {kThreads},
          .shared_bytes = kSharedBytes,
          .early = true},
         MultiplyWgmmaRows<T>, p);
}

RowsProduct RowsProductOf(const Product& product) {
  RowsProduct made = {.scales = F8StageScales::Of(F8Weights::Of(product.w)),
                      .outputs = static_cast<int32_t>(product.w.shape[0]),
                      .bias = product.bias,
                      .y = {},
                      .wide_y = {}};
  if (product.y.dtype == DType::kF32) {
    made.wide_y = RowsOf<float>(product.y);
  } else {
    made.y = RowsOf<BFloat16>(product.y);
  }
  return made;
}

template <typename T>
constexpr int64_t kBytesOfSums = 2 * kMostBlocks * kOutputs<T> * T::kRows * int64_t{sizeof(float)};

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
              .steps = static_cast<int32_t>(x.shape[1] / kColumns),
              .num_products = static_cast<int32_t>(products.size()),
              .sums = reinterpret_cast<float*>(workspace),
              .counters = gpu.counters(),
              .products = {},
              .first_tile = {},
              .weights = {}};
  int64_t wide_tiles = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    p.products[i] = RowsProductOf(products[i]);
    wide_tiles += DivideUp(p.products[i].outputs, kOutputs<WideTile>);
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
