#include "cuda/ops/grouped_linear/wgmma_groups.h"

#include <cstdint>
#include <type_traits>

#include "cc/ops/grouped_linear/grouped_linear.h"
#include "cc/ops/linear/linear.h"
#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/gpu_wgmma.h"
#include "cuda/ops/grouped_linear/expert_groups.h"
#include "cuda/ops/grouped_linear/routed_rows.h"
#include "cuda/ops/linear/tensor_cores.h"

namespace pagemill::gpu {
namespace {

using ops::grouped_linear::WeightOperand;

constexpr int kGroupRows = 128;  // at most
constexpr int64_t kMostSharedBytes = 227 << 10;

constexpr int64_t RowBytesOf(int64_t columns) { return columns * int64_t{sizeof(BFloat16)}; }

// The product of all groups with one stack of matrices.
struct GroupsProduct {
  const void* stack;       // bf16 [E, M, K], M a multiple of 8, aligned to 16 bytes
  int64_t matrix_bytes;    // from one matrix to the next, whole rows
  RoutedShape shape;       // K and the step of x are those of all products
  Rows<const float> bias;  // [E, M], or null
  Rows<BFloat16> y;        // rows are aligned to 16 bytes
};

struct GroupsCall {
  Routing routing;         // with groups of up to kGroupRows, or without
  Rows<const BFloat16> x;  // rows are aligned to 16 bytes
  int32_t num_products;
  GroupsProduct products[ops::kMaxMatrices];
};

// A tile is kOutputs outputs of the rows of a group. A block stays on its multiprocessor and
// computes one tile after the other: kProducers threads copy stages of kColumns columns of both
// factors to shared memory, and go on with the next tile while the others still store results of
// this one.
constexpr int kColumns = kTileRowBytes / static_cast<int>(sizeof(BFloat16));
constexpr int kProducers = kWarpgroupThreads, kConsumers = 2 * kWarpgroupThreads;
constexpr int kThreads = kProducers + kConsumers;
constexpr int kOutputsOfPart = kConsumers / kWarpgroupThreads * kProductRows;
// Of 65,536, in multiples of 8. The largest sums take 128 of a consumer's.
constexpr int kProducerRegisters = 56, kConsumerRegisters = 224;

// For groups of many rows: each byte of shared memory is part of as many products as registers
// allow.
struct LargeTile {
  static constexpr int kParts = 2, kRows = kGroupRows, kStages = 4;
};
// For single rows, of which weights are all that takes time: more tiles than multiprocessors, and
// as many bytes under way.
struct SmallTile {
  static constexpr int kParts = 1, kRows = 16, kStages = 12;
};

template <typename T>
constexpr int kOutputs = T::kParts * kOutputsOfPart;

template <typename T>
struct Shared {
  uint8_t w[T::kStages][kOutputs<T> * kTileRowBytes];
  uint8_t x[T::kStages][T::kRows * kTileRowBytes];
  Vector<uint32_t, 4> results[kConsumers / 32][32];  // of a warp: 16 rows of 16 outputs
  uint64_t full[T::kStages], empty[T::kStages];
};

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
    for (int i = 0; i < call.num_products; ++i) {
      visit(call.products[i].stack);
      visit(call.products[i].bias.data);
      visit(call.products[i].y.data);
    }
  }
};

template <typename T>
struct Tile {
  ExpertGroup group;
  int product, first_output;

  PAGEMILL_DEVICE static int Count(const Params& p) {
    return static_cast<int>(p.call.routing.num_groups) * p.first_tile[p.call.num_products];
  }
  PAGEMILL_DEVICE static Tile At(const Params& p, int index) {
    const int per_group = p.first_tile[p.call.num_products];
    const int in_group = index % per_group;
    int product = 0;
    while (in_group >= p.first_tile[product + 1]) ++product;
    return {p.call.routing.GroupAt(index / per_group), product,
            (in_group - p.first_tile[product]) * kOutputs<T>};
  }
  PAGEMILL_DEVICE bool IsMultiplied(const Params& p) const {
    return group.count > 0 && group.expert != p.call.routing.ids.experts;
  }
};

// Stages in their order, the first one behind the last again.
template <int kStages>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;  // of the phase of the stage's barriers

  PAGEMILL_DEVICE void Next() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

template <typename T>
PAGEMILL_DEVICE void Produce(const Params& p, Shared<T>& shared) {
  const GroupsCall& call = p.call;
  const int thread = static_cast<int>(ThreadIndex().x);
  // A thread copies one piece of rows that are kStep apart.
  constexpr int kStep = kProducers / kTilePieces, kOwn = T::kRows / kStep;
  static_assert(kStep % 8 == 0, "the same order of pieces in all rows of a thread");
  const int piece = thread % kTilePieces, first_row = thread / kTilePieces;
  const int own_offset = TilePiece(first_row, piece);
  const int64_t x_step = call.products[0].shape.x_step;
  const int steps = static_cast<int>(call.products[0].shape.columns) / kColumns;
  const int32_t choices = static_cast<int32_t>(call.routing.ids.choices);
  Ring<T::kStages> ring;
  for (int index = static_cast<int>(BlockIndex().x); index < Tile<T>::Count(p);
       index += static_cast<int>(GridSize().x)) {
    const auto tile = Tile<T>::At(p, index);
    if (!tile.IsMultiplied(p)) continue;
    const BFloat16* of_x[kOwn];
    PAGEMILL_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      const int in_group = first_row + i * kStep;
      of_x[i] = nullptr;
      if (in_group >= tile.group.count) continue;
      const int32_t row = call.routing.RowAt(tile.group.begin + in_group);
      of_x[i] = call.x[row / choices] + row % choices * x_step + piece * 8;
    }
    for (int step = 0; step < steps; ++step) {
      AwaitPhase(&shared.empty[ring.stage], ring.parity ^ 1);
      if (thread == 0) {
        ArriveExpecting(&shared.full[ring.stage], sizeof(shared.w[0]));
        LoadTile(shared.w[ring.stage], p.stacks[tile.product], step * kColumns, tile.first_output,
                 tile.group.expert, &shared.full[ring.stage]);
      }
      // Rows of x that the group does not have stay what they are: their sums are not stored.
      PAGEMILL_UNROLL
      for (int i = 0; i < kOwn; ++i) {
        if (of_x[i] == nullptr) continue;
        CopyAsync16(shared.x[ring.stage] + own_offset + i * kStep * kTileRowBytes,
                    of_x[i] + step * kColumns);
      }
      ArriveWhenCopied(&shared.full[ring.stage]);
      ring.Next();
    }
  }
  CommitCopies();
  WaitCopies<0>();  // none is under way when the thread ends
}

// By consumers, for a group of at most kN rows.
template <int kN, typename T>
PAGEMILL_DEVICE void MultiplyTile(const Params& p, Shared<T>& shared, const Tile<T>& tile,
                                  Ring<T::kStages>& ring) {
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

  float sums[T::kParts][kN / 2] = {};
  const auto release = [&](int stage) {
    if (thread % kWarpgroupThreads == 0) Arrive(&shared.empty[stage]);
  };
  const int steps = static_cast<int>(product.shape.columns) / kColumns;
  int before = -1;  // the stage that is still multiplied
  for (int step = 0; step < steps; ++step) {
    AwaitPhase(&shared.full[ring.stage], ring.parity);
    ShowProducts();
    StartProduct<kN, kConsumers / kWarpgroupThreads>(shared.w[ring.stage], shared.x[ring.stage],
                                                     thread / kWarpgroupThreads, sums);
    CommitProducts();
    AwaitProducts<1>(sums);
    if (before >= 0) release(before);
    before = ring.stage;
    ring.Next();
  }
  AwaitProducts<0>(sums);
  release(before);

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
        pairs[j] = PackBFloat16(sums[part][first] + biases[j % 2],
                                sums[part][first + 1] + biases[j % 2]);
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
PAGEMILL_DEVICE void StoreZeros(const Params& p, const Tile<T>& tile) {
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
PAGEMILL_DEVICE void Consume(const Params& p, Shared<T>& shared) {
  Ring<T::kStages> ring;
  for (int index = static_cast<int>(BlockIndex().x); index < Tile<T>::Count(p);
       index += static_cast<int>(GridSize().x)) {
    const auto tile = Tile<T>::At(p, index);
    if (!tile.IsMultiplied(p)) {
      StoreZeros(p, tile);
    } else if constexpr (std::is_same_v<T, SmallTile>) {
      MultiplyTile<SmallTile::kRows>(p, shared, tile, ring);
    } else if (tile.group.count <= 32) {
      MultiplyTile<32>(p, shared, tile, ring);
    } else if (tile.group.count <= 64) {
      MultiplyTile<64>(p, shared, tile, ring);
    } else if (tile.group.count <= 96) {
      MultiplyTile<96>(p, shared, tile, ring);
    } else {
      MultiplyTile<LargeTile::kRows>(p, shared, tile, ring);
    }
  }
}

template <typename T>
PAGEMILL_KERNEL_OF(kThreads, 1)
MultiplyWgmmaGroups(const PAGEMILL_GRID_CONSTANT Params p) {
  LetNextBegin();
  auto& shared = *AlignedShared<Shared<T>>();
  if (ThreadIndex().x == 0) {
    for (int i = 0; i < T::kStages; ++i) {
      InitBarrier(&shared.full[i], kProducers + 1);  // each producer, and the tile of w
      InitBarrier(&shared.empty[i], kConsumers / kWarpgroupThreads);
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
void Run(const GroupsCall& call, GpuStream& stream) {
  constexpr int64_t kSharedBytes = sizeof(Shared<T>) + kSharedAlignment;
  static_assert(kSharedBytes <= kMostSharedBytes);
  Params p = {.call = call, .first_tile = {}, .stacks = {}};
  stream.MakeCurrent();  // the driver describes matrices to the current GPU
  for (int i = 0; i < call.num_products; ++i) {
    const GroupsProduct& product = call.products[i];
    p.first_tile[i + 1] =
        p.first_tile[i] + static_cast<int32_t>(DivideUp(product.shape.outputs, kOutputs<T>));
    const auto error = MakeTileMap({.data = product.stack,
                                    .matrices = call.routing.ids.experts,
                                    .rows = product.shape.outputs,
                                    .columns = product.shape.columns,
                                    .matrix_bytes = product.matrix_bytes,
                                    .row_bytes = RowBytesOf(product.shape.columns),
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

}  // namespace

bool FitsWgmmaGroups(const device::Capabilities& caps, const ops::OpCall& call) {
  if (caps.gpu.compute_major != 9 || caps.gpu.compute_minor != 0) return false;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const TensorView& stack = call.inputs[WeightOperand(i)];
    if (stack.dtype != DType::kBF16 || stack.parts != nullptr || stack.shape[1] == 0 ||
        stack.shape[1] % 8 != 0 || stack.shape[2] % kColumns != 0) {
      return false;
    }
  }
  return true;
}

bool WgmmaGroupsTake(const ops::OpCall& call) {
  if (!HasAlignedRows(call.inputs[0])) return false;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const TensorView& stack = call.inputs[WeightOperand(i)];
    if (!AreReadOnTensorCores(stack) || !HasAlignedRows(call.outputs[i]) ||
        stack.row_stride_bytes % RowBytesOf(stack.shape[2]) != 0) {
      return false;
    }
  }
  return true;
}

void MultiplyWgmmaGroups(const ops::OpCall& call, ops::KernelContext& context) {
  GroupsCall groups = {.routing = Route(call, kGroupRows, context),
                       .x = RowsOf<const BFloat16>(call.inputs[0]),
                       .num_products = static_cast<int32_t>(call.outputs.size()),
                       .products = {}};
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const TensorView& stack = call.inputs[WeightOperand(i)];
    groups.products[i] = {.stack = stack.data,
                          .matrix_bytes = stack.row_stride_bytes,
                          .shape = RoutedShape::Of(call, i),
                          .bias = BiasesOf(call, i),
                          .y = RowsOf<BFloat16>(call.outputs[i])};
  }
  GpuStream& stream = static_cast<GpuStream&>(*context.stream);
  if (groups.routing.data == nullptr) {
    Run<SmallTile>(groups, stream);
  } else {
    Run<LargeTile>(groups, stream);
  }
}

}  // namespace pagemill::gpu
