// File: cuda/ops/grouped_linear/wgmma_group_tiles.h
// The kernel of wgmma_groups.h for weights of bf16, and of e4m3 with x rounded likewise. A source
// file has the tiles of one of them.
#ifndef PAGEMILL_CUDA_OPS_GROUPED_LINEAR_WGMMA_GROUP_TILES_H_
#define PAGEMILL_CUDA_OPS_GROUPED_LINEAR_WGMMA_GROUP_TILES_H_

#include <cstdint>

#include "cc/device/capabilities.h"
#include "cc/ops/grouped_linear/grouped_linear.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/op.h"
#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/gpu_wgmma.h"
#include "cuda/ops/grouped_linear/expert_groups.h"
#include "cuda/ops/grouped_linear/routed_rows.h"
#include "cuda/ops/linear/f8_stages.h"
#include "cuda/ops/linear/stage_ring.h"

namespace pagemill::gpu::wgmma_groups {

using ops::grouped_linear::WeightOperand;

inline constexpr int kGroupRows = 128;  // at most

// The product of all groups with one stack of matrices.
struct GroupsProduct {
  const void* stack;       // [E, M, K], M a multiple of 8, aligned to 16 bytes
  int64_t row_bytes;
  int64_t matrix_bytes;    // from one matrix to the next, whole rows
  F8StageScales scales;    // of e4m3
  RoutedShape shape;       // K is that of all products
  Rows<const float> bias;  // [E, M], or null
  Rows<BFloat16> y;        // rows are aligned to 16 bytes
};

struct GroupsCall {
  Routing routing;         // with groups of up to kGroupRows, or without
  Rows<const uint8_t> x;   // bytes of its elements, aligned to 16
  int64_t x_step;          // bytes between the choices of a token
  // Of e4m3: a scale for each stage of a row, and their numbers between the choices of a token.
  Rows<const float> x_scales;
  int64_t x_scale_step;
  int32_t num_products;
  GroupsProduct products[ops::kMaxMatrices];
};

// A tile is kOutputs outputs of the rows of a group. A block stays on its multiprocessor and
// computes one tile after the other: kProducers threads copy stages of kColumns columns of both
// factors to shared memory, and go on with the next tile while the others still store results of
// this one.
inline constexpr int kProducers = kWarpgroupThreads, kConsumers = 2 * kWarpgroupThreads;
inline constexpr int kThreads = kProducers + kConsumers, kConsumerWarps = kConsumers / 32;
inline constexpr int kOutputsOfPart = kConsumers / kWarpgroupThreads * kProductRows;
// Of 65,536, in multiples of 8. The largest sums take 128 of a consumer's.
inline constexpr int kProducerRegisters = 56, kConsumerRegisters = 224;

// `T` is a tile: kType of its factors, kParts times kOutputsOfPart outputs, kRows rows of x, kStages
// under way.
template <typename T>
constexpr int kOutputs = T::kParts * kOutputsOfPart;
template <typename T>
constexpr int kColumns = kTileRowBytes / ElementBytes(T::kType);
template <typename T>
constexpr bool kHasScales = T::kType == ProductType::kF8E4M3;

template <typename T>
struct Shared {
  uint8_t w[T::kStages][kOutputs<T> * kTileRowBytes];
  uint8_t x[T::kStages][T::kRows * kTileRowBytes];
  Vector<uint32_t, 4> results[kConsumerWarps][32];  // of a warp: 16 rows of 16 outputs
  float x_scales[T::kStages][kHasScales<T> ? T::kRows : 1];
  uint64_t full[T::kStages], empty[T::kStages];
};

template <typename T>
struct Params {
  GroupsCall call;
  int32_t first_tile[ops::kMaxMatrices + 1];  // of a product, of the tiles of a group
  TileMap stacks[ops::kMaxMatrices];

  template <typename Visit>
  void ForData(const Visit& visit) const {
    visit(call.routing.data);
    visit(call.routing.order);
    visit(call.routing.ids.data);
    visit(call.x.data);
    visit(call.x_scales.data);
    for (int i = 0; i < call.num_products; ++i) {
      visit(call.products[i].stack);
      visit(call.products[i].scales.data);
      visit(call.products[i].bias.data);
      visit(call.products[i].y.data);
    }
  }
};

template <typename T>
struct Tile {
  ExpertGroup group;
  int product, first_output;

  PAGEMILL_DEVICE static int Count(const Params<T>& p) {
    return static_cast<int>(p.call.routing.num_groups) * p.first_tile[p.call.num_products];
  }
  PAGEMILL_DEVICE static Tile At(const Params<T>& p, int index) {
    const int per_group = p.first_tile[p.call.num_products];
    const int in_group = index % per_group;
    int product = 0;
    while (in_group >= p.first_tile[product + 1]) ++product;
    return {p.call.routing.GroupAt(index / per_group), product,
            (in_group - p.first_tile[product]) * kOutputs<T>};
  }
  PAGEMILL_DEVICE bool IsMultiplied(const Params<T>& p) const {
    return group.count > 0 && group.expert != p.call.routing.ids.experts;
  }
};

// Where the operands of a routed row are, given those of tokens and the step between choices.
template <typename T>
PAGEMILL_DEVICE const T* OfRoutedRow(const Rows<const T>& tokens, int64_t step, int32_t row,
                                     int32_t choices) {
  return tokens[row / choices] + row % choices * step;
}

template <typename T>
PAGEMILL_DEVICE void Produce(const Params<T>& p, Shared<T>& shared) {
  const GroupsCall& call = p.call;
  const int thread = static_cast<int>(ThreadIndex().x);
  // A thread copies one piece of rows that are kStep apart.
  constexpr int kStep = kProducers / kTilePieces, kOwn = T::kRows / kStep;
  static_assert(kStep % 8 == 0, "the same order of pieces in all rows of a thread");
  const int piece = thread % kTilePieces, first_row = thread / kTilePieces;
  const int own_offset = TilePiece(first_row, piece);
  const int steps = static_cast<int>(call.products[0].shape.columns) / kColumns<T>;
  const int32_t choices = static_cast<int32_t>(call.routing.ids.choices);
  StageRing<T::kStages> ring;
  for (int index = static_cast<int>(BlockIndex().x); index < Tile<T>::Count(p);
       index += static_cast<int>(GridSize().x)) {
    const auto tile = Tile<T>::At(p, index);
    if (!tile.IsMultiplied(p)) continue;
    const uint8_t* of_x[kOwn];
    PAGEMILL_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      const int in_group = first_row + i * kStep;
      of_x[i] = nullptr;
      if (in_group >= tile.group.count) continue;
      const int32_t row = call.routing.RowAt(tile.group.begin + in_group);
      of_x[i] = OfRoutedRow(call.x, call.x_step, row, choices) + piece * 16;
    }
    const float* scales = nullptr;  // of one row
    if (kHasScales<T> && thread < tile.group.count) {
      scales = OfRoutedRow(call.x_scales, call.x_scale_step,
                           call.routing.RowAt(tile.group.begin + thread), choices);
    }
    for (int step = 0; step < steps; ++step) {
      AwaitPhase(&shared.empty[ring.stage], ring.parity ^ 1);
      if (thread == 0) {
        ArriveExpecting(&shared.full[ring.stage], sizeof(shared.w[0]));
        LoadTile(shared.w[ring.stage], p.stacks[tile.product], step * kColumns<T>,
                 tile.first_output, tile.group.expert, &shared.full[ring.stage]);
      }
      // Rows of x that the group does not have stay what they are: their sums are not stored.
      PAGEMILL_UNROLL
      for (int i = 0; i < kOwn; ++i) {
        if (of_x[i] == nullptr) continue;
        CopyAsync16(shared.x[ring.stage] + own_offset + i * kStep * kTileRowBytes,
                    of_x[i] + step * kTileRowBytes);
      }
      if (scales != nullptr) CopyAsync4(&shared.x_scales[ring.stage][thread], scales + step);
      ArriveWhenCopied(&shared.full[ring.stage]);
      ring.Next();
    }
  }
  CommitCopies();
  WaitCopies<0>();  // none is under way when the thread ends
}

// The sums of a consumer, as gpu_wgmma.h has them, for kN rows of x.
template <typename T, int kN>
struct TileSums {
  float values[T::kParts][kN / 2] = {};
};

// Stages of bf16, whose products follow each other without a pause.
template <int kN, typename T>
PAGEMILL_DEVICE void AddStages(Shared<T>& shared, int steps, int warpgroup,
                               StageRing<T::kStages>& ring, TileSums<T, kN>& sums) {
  int before = -1;  // the stage that is still multiplied
  for (int step = 0; step < steps; ++step) {
    AwaitPhase(&shared.full[ring.stage], ring.parity);
    ShowProducts();
    StartProduct<kN, kConsumers / kWarpgroupThreads>(shared.w[ring.stage], shared.x[ring.stage],
                                                     warpgroup, sums.values);
    CommitProducts();
    AwaitProducts<1>(sums.values);
    if (before >= 0) Release(&shared.empty[before]);
    before = ring.stage;
    ring.Next();
  }
  AwaitProducts<0>(sums.values);
  Release(&shared.empty[before]);
}

// Stages of e4m3: the products of one have a scale for each output and row.
template <int kN, typename T>
PAGEMILL_DEVICE void AddScaledStages(Shared<T>& shared, int steps, int warpgroup,
                                     const float* const (&scales)[T::kParts][2], int scale_step,
                                     StageRing<T::kStages>& ring, TileSums<T, kN>& totals) {
  for (int step = 0; step < steps; ++step) {
    float w_scales[T::kParts][2];
    PAGEMILL_UNROLL
    for (int part = 0; part < T::kParts; ++part) {
      PAGEMILL_UNROLL
      for (int i = 0; i < 2; ++i) w_scales[part][i] = scales[part][i][step * scale_step];
    }
    AwaitPhase(&shared.full[ring.stage], ring.parity);
    ShowProducts();
    TileSums<T, kN> sums;
    StartProduct<kN, kConsumers / kWarpgroupThreads, ProductType::kF8E4M3>(
        shared.w[ring.stage], shared.x[ring.stage], warpgroup, sums.values);
    CommitProducts();
    const ScalesOfLane<kN> x_scales(shared.x_scales[ring.stage]);
    AwaitProducts<0>(sums.values);
    Release(&shared.empty[ring.stage]);
    x_scales.AddScaled(sums.values, w_scales, totals.values);
    ring.Next();
  }
}

// By consumers, for a group of at most kN rows.
template <int kN, typename T>
PAGEMILL_DEVICE void MultiplyTile(const Params<T>& p, Shared<T>& shared, const Tile<T>& tile,
                                  StageRing<T::kStages>& ring) {
  const GroupsCall& call = p.call;
  const GroupsProduct& product = call.products[tile.product];
  const int thread = static_cast<int>(ThreadIndex().x) - kProducers;
  const int warp = thread / 32, lane = thread % 32;
  // Rows are stored 16 at a time, each by two lanes.
  int32_t rows[kN / 16];
  PAGEMILL_UNROLL
  for (int i = 0; i < kN / 16; ++i) {
    const int in_group = 16 * i + lane / 2;
    rows[i] =
        in_group < tile.group.count ? call.routing.RowAt(tile.group.begin + in_group) : -1;
  }

  TileSums<T, kN> sums;
  const int steps = static_cast<int>(product.shape.columns) / kColumns<T>;
  const int warpgroup = thread / kWarpgroupThreads;
  if constexpr (kHasScales<T>) {
    const float* scales[T::kParts][2];  // of the first stage
    PAGEMILL_UNROLL
    for (int part = 0; part < T::kParts; ++part) {
      PAGEMILL_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int output = tile.first_output + part * kOutputsOfPart + warp * 16 + lane / 4 + 8 * i;
        const int last = static_cast<int>(product.shape.outputs) - 1;
        scales[part][i] = product.scales.data + tile.group.expert * product.scales.of_matrix +
                          product.scales.IndexOf(output < last ? output : last, /*stage=*/0);
      }
    }
    AddScaledStages<kN, T>(shared, steps, warpgroup, scales, product.scales.step, ring, sums);
  } else {
    AddStages<kN, T>(shared, steps, warpgroup, ring, sums);
  }

  // A warp has 16 outputs of every row. Of 8 x 8 sums each lane has two rows of one output; they
  // are exchanged so that it has eight outputs of one row.
  auto& results = shared.results[warp];
  auto* const to = &results[(lane % 8 + lane / 16 * 8) * 2 + lane / 8 % 2];
  const int32_t choices = static_cast<int32_t>(call.routing.ids.choices);
  PAGEMILL_UNROLL
  for (int part = 0; part < T::kParts; ++part) {
    const int first_output = tile.first_output + part * kOutputsOfPart + warp * 16;
    float biases[2] = {};
    if (product.bias.data != nullptr) {
      PAGEMILL_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int output = first_output + lane / 4 + 8 * i;
        if (output < product.shape.outputs) biases[i] = product.bias[tile.group.expert][output];
      }
    }
    const int output = first_output + lane % 2 * 8;
    PAGEMILL_UNROLL
    for (int i = 0; i < kN / 16; ++i) {
      uint32_t pairs[4];
      PAGEMILL_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int first = 8 * i + 2 * j;
        pairs[j] = PackBFloat16(sums.values[part][first] + biases[j % 2],
                                sums.values[part][first + 1] + biases[j % 2]);
      }
      StoreTransposed(pairs, to);
      SyncWarp(AllLanes());
      const Vector<uint32_t, 4> eight = results[lane];
      if (rows[i] >= 0 && output < product.shape.outputs) {
        BFloat16* const y =
            product.y[rows[i] / choices] + rows[i] % choices * product.shape.y_step;
        *reinterpret_cast<Vector<uint32_t, 4>*>(y + output) = eight;
      }
      SyncWarp(AllLanes());
    }
  }
}

// By consumers: rows of no expert are 0.
template <typename T>
PAGEMILL_DEVICE void StoreZeros(const Params<T>& p, const Tile<T>& tile) {
  const GroupsProduct& product = p.call.products[tile.product];
  const int32_t choices = static_cast<int32_t>(p.call.routing.ids.choices);
  for (int e = static_cast<int>(ThreadIndex().x) - kProducers;
       e < tile.group.count * kOutputs<T>; e += kConsumers) {
    const int output = tile.first_output + e % kOutputs<T>;
    const int32_t row = p.call.routing.RowAt(tile.group.begin + e / kOutputs<T>);
    if (output >= product.shape.outputs) continue;
    product.y[row / choices][row % choices * product.shape.y_step + output] =
        FromFloat<BFloat16>(0);
  }
}

template <typename T>
PAGEMILL_DEVICE void Consume(const Params<T>& p, Shared<T>& shared) {
  StageRing<T::kStages> ring;
  for (int index = static_cast<int>(BlockIndex().x); index < Tile<T>::Count(p);
       index += static_cast<int>(GridSize().x)) {
    const auto tile = Tile<T>::At(p, index);
    if (!tile.IsMultiplied(p)) {
      StoreZeros(p, tile);
    } else if constexpr (T::kRows < 32) {
      MultiplyTile<T::kRows>(p, shared, tile, ring);
    } else if (tile.group.count <= 32) {
      MultiplyTile<32>(p, shared, tile, ring);
    } else if (tile.group.count <= 64) {
      MultiplyTile<64>(p, shared, tile, ring);
    } else if (tile.group.count <= 96) {
      MultiplyTile<96>(p, shared, tile, ring);
    } else {
      MultiplyTile<T::kRows>(p, shared, tile, ring);
    }
  }
}

template <typename T>
PAGEMILL_KERNEL_OF(kThreads, 1)
MultiplyWgmmaGroups(const PAGEMILL_GRID_CONSTANT Params<T> p) {
  LetNextBegin();
  auto& shared = *AlignedShared<Shared<T>>();
  if (ThreadIndex().x == 0) {
    for (int i = 0; i < T::kStages; ++i) {
      InitBarrier(&shared.full[i], kProducers + 1);  // each producer, and the tile of w
      InitBarrier(&shared.empty[i], kConsumerWarps);
    }
    ShowBarriers();
  }
  SyncBlock();
  AwaitInputs();
  if (ThreadIndex().x < kProducers) {
    GiveRegisters<kProducerRegisters>();
    Produce(p, shared);
  } else {
    TakeRegisters<kConsumerRegisters>();
    Consume(p, shared);
  }
}

template <typename T>
void RunTiles(const GroupsCall& call, GpuStream& stream) {
  constexpr int64_t kSharedBytes = sizeof(Shared<T>) + kSharedAlignment;
  static_assert(kSharedBytes <= kMostSharedBytes);
  Params<T> p = {.call = call, .first_tile = {}, .stacks = {}};
  stream.MakeCurrent();  // the driver describes matrices to the current GPU
  for (int i = 0; i < call.num_products; ++i) {
    const GroupsProduct& product = call.products[i];
    p.first_tile[i + 1] =
        p.first_tile[i] + static_cast<int32_t>(DivideUp(product.shape.outputs, kOutputs<T>));
    const auto error = MakeTileMap({.data = product.stack,
                                    .type = T::kType,
                                    .matrices = call.routing.ids.experts,
                                    .rows = product.shape.outputs,
                                    .columns = product.shape.columns,
                                    .matrix_bytes = product.matrix_bytes,
                                    .row_bytes = product.row_bytes,
                                    .tile_rows = kOutputs<T>},
                                   p.stacks[i]);
    if (error != PAGEMILL_GPU(Success)) return stream.Check(error);
  }
  Launch(stream,
         {.blocks = {static_cast<uint32_t>(stream.capabilities().multiprocessors)},
          .threads = {kThreads},
          .shared_bytes = kSharedBytes,
          .early = true},
         MultiplyWgmmaGroups<T>, p);
}

template <typename Small, typename Large>
void RunGroups(const GroupsCall& call, GpuStream& stream) {
  if (call.routing.data == nullptr) {
    RunTiles<Small>(call, stream);
  } else {
    RunTiles<Large>(call, stream);
  }
}

// True if this GPU has the words, and all stacks are of a format that fits(stack) the tiles.
template <typename Fits>
bool FitGroupTiles(const device::Capabilities& caps, const ops::OpCall& call, const Fits& fits) {
  if (!HasWgmma(caps.gpu)) return false;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const TensorView& stack = call.inputs[WeightOperand(i)];
    if (stack.shape[1] == 0 || stack.shape[1] % 8 != 0 || !fits(stack)) return false;
  }
  return true;
}

// True if x, results and all stacks lie at multiples of 16 bytes: is_aligned(stack).
template <typename IsAligned>
bool AreGroupsAligned(const ops::OpCall& call, const IsAligned& is_aligned) {
  if (!HasAlignedRows(call.inputs[0])) return false;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (!is_aligned(call.inputs[WeightOperand(i)]) || !HasAlignedRows(call.outputs[i])) {
      return false;
    }
  }
  return true;
}

}  // namespace pagemill::gpu::wgmma_groups

#endif  // PAGEMILL_CUDA_OPS_GROUPED_LINEAR_WGMMA_GROUP_TILES_H_
