#include "cc/ops/apply_adapter/apply_adapter.h"

#include "cuda/gpu_elements.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/apply_adapter/apply_adapter.h"
#include "cuda/ops/gpu_support.h"

namespace pagemill::gpu {
namespace {

using ops::AdapterMatrices;
using ops::kMaxAdapterRank;

constexpr int kThreads = 256;

// The adapter of a row; null if it has none.
PAGEMILL_DEVICE const AdapterMatrices* AdapterOf(const AdapterMatrices* table, int32_t slot) {
  if (slot < 0) return nullptr;
  const AdapterMatrices& adapter = table[slot];
  const bool empty = adapter.rank == 0 && adapter.gain == nullptr && adapter.offset == nullptr;
  return empty ? nullptr : &adapter;
}

// Calls body(matrix) with a typed pointer.
template <typename Body>
PAGEMILL_DEVICE void WithMatrix(const AdapterMatrices& adapter, const void* matrix,
                                const Body& body) {
  if (adapter.dtype == DType::kF32) {
    body(static_cast<const float*>(matrix));
  } else {
    body(static_cast<const BFloat16*>(matrix));
  }
}

// low[n] = scale * A x[n]: a block for each row, a warp for each element.
template <typename T>
PAGEMILL_KERNEL LowerRow(Rows<const T> x, const int32_t* slots, const AdapterMatrices* table,
                         Rows<float> low, int64_t size) {
  const int64_t row = BlockIndex().x;
  const AdapterMatrices* const adapter = AdapterOf(table, slots[row]);
  if (adapter == nullptr) return;
  WithMatrix(*adapter, adapter->a, [&](const auto* a) {
    for (int r = Warp(); r < adapter->rank; r += kThreads / WarpLanes()) {
      float sum = 0;
      for (int64_t k = Lane(); k < size; k += WarpLanes()) {
        sum += ToFloat(a[r * size + k]) * ToFloat(x[row][k]);
      }
      sum = WarpSum(sum);
      if (Lane() == 0) low[row][r] = adapter->scale * sum;
    }
  });
}

// z[n] = gain * y[n] + offset + B low[n].
template <typename T>
PAGEMILL_KERNEL RaiseRow(Rows<const T> y, Rows<const float> low, const int32_t* slots,
                         const AdapterMatrices* table, Rows<T> z, int64_t size) {
  const AdapterMatrices* const adapter = AdapterOf(table, slots[BlockIndex().x]);
  if (adapter == nullptr && z.data == y.data) return;
  ForElements(size, [&](int64_t row, int64_t m) {
    if (adapter == nullptr) {
      z[row][m] = y[row][m];
      return;
    }
    float sum = ToFloat(y[row][m]);
    if (adapter->gain != nullptr) sum *= adapter->gain[m];
    if (adapter->offset != nullptr) sum += adapter->offset[m];
    WithMatrix(*adapter, adapter->b, [&](const auto* b) {
      for (int r = 0; r < adapter->rank; ++r) sum += low[row][r] * ToFloat(b[r * size + m]);
    });
    z[row][m] = FromFloat<T>(sum);
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::ApplyAdapterArgs args = ops::ToApplyAdapterArgs(call);
  const int64_t rows = args.y.shape[0], size = args.y.RowElements();
  const Rows<float> low = {reinterpret_cast<float*>(context.workspace.data()), kMaxAdapterRank};
  WithActType(args.y.dtype, [&]<typename T>(T) {
    Launch(*context.stream, {.blocks = {static_cast<uint32_t>(rows)}, .threads = {kThreads}},
           LowerRow<T>, RowsOf<const T>(args.x), args.slots, args.table, low,
           args.x.RowElements());
    Launch(*context.stream, ShapeOfElements(rows, size), RaiseRow<T>, RowsOf<const T>(args.y),
           Rows<const float>{low.data, low.stride}, args.slots, args.table, RowsOf<T>(args.z),
           size);
  });
}

int64_t WorkspaceBytes(const ops::OpCall& call, int32_t) {
  return call.inputs[0].shape[0] * RowBytes(DType::kF32, kMaxAdapterRank);
}

constexpr ops::Kernel kKernels[] = {
    {"apply_adapter", "gpu", 10, OnEveryGpu, Run, WorkspaceBytes}};

}  // namespace

std::span<const ops::Kernel> ApplyAdapterKernels() { return kKernels; }

}  // namespace pagemill::gpu
