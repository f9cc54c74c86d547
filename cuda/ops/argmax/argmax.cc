#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/argmax/row_columns.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

constexpr int kThreads = 1024;

struct Found {
  float value = -INFINITY;
  int32_t column = -1;
};

// The better of two: the larger value, or the lower column. Invalid ones (+inf, no column) win.
PAGEMILL_DEVICE Found Better(Found a, Found b) {
  if (a.value != b.value) return a.value > b.value ? a : b;
  return static_cast<uint32_t>(a.column) < static_cast<uint32_t>(b.column) ? a : b;
}

PAGEMILL_DEVICE Found WarpBest(Found found) {
  for (int bits = WarpLanes() / 2; bits > 0; bits /= 2) {
    Found other;
    other.value = ShuffleXor(AllLanes(), found.value, bits);
    other.column = ShuffleXor(AllLanes(), found.column, bits);
    found = Better(found, other);
  }
  return found;
}

PAGEMILL_KERNEL LargestOfRow(Rows<const float> x, int64_t size, int32_t* columns, float* values) {
  PAGEMILL_SHARED(float[32], warp_values);
  PAGEMILL_SHARED(int32_t[32], warp_columns);
  PAGEMILL_SHARED(int[32], warp_invalid);
  const float* const row = x[BlockIndex().x];
  Found found;
  bool invalid = false;
  ForColumns(row, ThreadIndex().x, size, kThreads, [&](int64_t column, float value) {
    invalid = invalid || !(value < INFINITY);
    if (value > found.value) found = {value, static_cast<int32_t>(column)};
  });
  found = WarpBest(found);
  invalid = Ballot(AllLanes(), invalid) != 0;
  if (Lane() == 0) {
    warp_values[Warp()] = found.value;
    warp_columns[Warp()] = found.column;
    warp_invalid[Warp()] = invalid ? 1 : 0;
  }
  SyncBlock();
  if (ThreadIndex().x != 0) return;
  for (int warp = 1; warp < kThreads / WarpLanes(); ++warp) {
    found = Better(found, {warp_values[warp], warp_columns[warp]});
    invalid = invalid || warp_invalid[warp] != 0;
  }
  columns[BlockIndex().x] = invalid ? -1 : found.column;
  values[BlockIndex().x] = invalid ? INFINITY : found.value;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  Launch(*context.stream,
         {.blocks = {static_cast<uint32_t>(x.shape[0])}, .threads = {kThreads}}, LargestOfRow,
         RowsOf<const float>(x), x.shape[1], call.outputs[0].Data<int32_t>(),
         call.outputs[1].Data<float>());
}

constexpr ops::Kernel kKernels[] = {{"argmax", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> ArgmaxKernels() { return kKernels; }

}  // namespace pagemill::gpu
