#include "cc/ops/apply_adapter/apply_adapter.h"

#include <algorithm>
#include <type_traits>

#include "cuda/gpu_elements.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

using ops::AdaptedLayer;
using ops::AdapterMatrices;
using ops::ApplyAdapterArgs;
using ops::kMaxAdapterRank;

constexpr int kThreads = 256;
constexpr int64_t kRowsAtATime = 1 << 14;  // bounds the workspace

// The adapters of rows: choices of tokens.
struct RowAdapters {
  const AdapterMatrices* data;
  const int32_t* slots;    // null: no row has an adapter
  const int32_t* rows;     // null: token n has slots[n]
  const int32_t* experts;  // null: none
  int64_t choices, num_experts;

  // Null if the row has none.
  PAGEMILL_DEVICE const AdapterMatrices* Of(int64_t row) const {
    if (slots == nullptr) return nullptr;
    const int64_t token = row / choices;
    const int32_t slot = slots[rows == nullptr ? token : rows[token]];
    if (slot < 0) return nullptr;
    const AdapterMatrices* adapter = data + slot;
    if (experts != nullptr) {
      const int32_t expert = experts[row];
      if (expert < 0 || expert >= num_experts) return nullptr;
      adapter = data + slot * num_experts + expert;
    }
    const bool empty =
        adapter->rank == 0 && adapter->gain == nullptr && adapter->offset == nullptr;
    return empty ? nullptr : adapter;
  }
};

// Rows of x, y or z, which are choices of tokens.
template <typename T>
struct ChoiceRows {
  T* data;
  int64_t stride, choices;
  int64_t step;  // elements from one choice to the next; 0: they share one row

  PAGEMILL_DEVICE T* operator[](int64_t row) const {
    return data + row / choices * stride + row % choices * step;
  }
};

template <typename T>
ChoiceRows<T> ChoicesOf(const TensorView& view, const ApplyAdapterArgs& args, int64_t size) {
  const Rows<T> rows = RowsOf<T>(view);
  return {rows.data, rows.stride, args.choices, view.RowElements() > size ? size : 0};
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

// low = scale * A x: a block for each row from `first` on, a warp for each element. X is int32_t if
// x has ids.
template <typename X>
PAGEMILL_KERNEL LowerRow(RowAdapters adapters, ChoiceRows<const X> x, int64_t first, int64_t size,
                         Rows<float> low) {
  const int64_t row = first + BlockIndex().x;
  const AdapterMatrices* const adapter = adapters.Of(row);
  if (adapter == nullptr) return;
  float* const to = low[BlockIndex().x];
  WithMatrix(*adapter, adapter->a, [&](const auto* a) {
    for (int r = Warp(); r < adapter->rank; r += kThreads / WarpLanes()) {
      float sum = 0;
      if constexpr (std::is_same_v<X, int32_t>) {
        sum = ToFloat(a[r * size + *x[row]]);
      } else {
        for (int64_t k = Lane(); k < size; k += WarpLanes()) {
          sum += ToFloat(a[r * size + k]) * ToFloat(x[row][k]);
        }
        sum = WarpSum(sum);
      }
      if (Lane() == 0) to[r] = adapter->scale * sum;
    }
  });
}

// z = gain * y + offset + B low, for the same rows.
template <typename Y>
PAGEMILL_KERNEL RaiseRow(RowAdapters adapters, ChoiceRows<const Y> y, Rows<const float> lows,
                         int64_t first, int64_t size, ChoiceRows<Y> z) {
  const int64_t row = first + BlockIndex().x;
  const AdapterMatrices* const adapter = adapters.Of(row);
  if (adapter == nullptr && z.data == y.data) return;
  const float* const low = lows[BlockIndex().x];
  ForElements(size, [&](int64_t, int64_t m) {
    if (adapter == nullptr) {
      z[row][m] = y[row][m];
      return;
    }
    float sum = ToFloat(y[row][m]);
    if (adapter->gain != nullptr) sum *= adapter->gain[m];
    if (adapter->offset != nullptr) sum += adapter->offset[m];
    WithMatrix(*adapter, adapter->b, [&](const auto* b) {
      for (int r = 0; r < adapter->rank; ++r) sum += low[r] * ToFloat(b[r * size + m]);
    });
    z[row][m] = FromFloat<Y>(sum);
  });
}

// Calls `body` with a value of the type of x.
template <typename Body>
void WithInputType(DType dtype, const Body& body) {
  dtype == DType::kI32 ? body(int32_t{}) : WithActType(dtype, body);
}

// Rows [first, first + count) of a layer.
void Apply(const ApplyAdapterArgs& args, const AdaptedLayer& layer, int64_t first, int64_t count,
           ops::KernelContext& context) {
  const Rows<float> low = {reinterpret_cast<float*>(context.workspace.data()), kMaxAdapterRank};
  const RowAdapters adapters = {layer.table,  args.slots,   args.rows,
                                args.experts, args.choices, args.num_experts};
  if (args.slots != nullptr) {
    const bool ids = args.x.dtype == DType::kI32;
    WithInputType(args.x.dtype, [&]<typename X>(X) {
      Launch(*context.stream, {.blocks = {static_cast<uint32_t>(count)}, .threads = {kThreads}},
             LowerRow<X>, adapters, ChoicesOf<const X>(args.x, args, ids ? 1 : args.in), first,
             args.in, low);
    });
  }
  WithActType(layer.y.dtype, [&]<typename Y>(Y) {
    Launch(*context.stream, ShapeOfElements(count, layer.out), RaiseRow<Y>, adapters,
           ChoicesOf<const Y>(layer.y, args, layer.out), Rows<const float>{low.data, low.stride},
           first, layer.out, ChoicesOf<Y>(layer.z, args, layer.out));
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ApplyAdapterArgs args = ops::ToApplyAdapterArgs(call);
  for (size_t i = 0; i < args.num_layers; ++i) {
    if (args.slots == nullptr && args.layers[i].z.data == args.layers[i].y.data) continue;
    for (int64_t first = 0; first < args.num_rows; first += kRowsAtATime) {
      const int64_t count = std::min(kRowsAtATime, args.num_rows - first);
      Apply(args, args.layers[i], first, count, context);
    }
  }
}

int64_t WorkspaceBytes(const ops::OpCall& call, int32_t) {
  return std::min(kRowsAtATime, ops::ToApplyAdapterArgs(call).num_rows) *
         RowBytes(DType::kF32, kMaxAdapterRank);
}

constexpr ops::Kernel kKernels[] = {
    {"apply_adapter", "gpu", 10, OnEveryGpu, Run, WorkspaceBytes}};

}  // namespace

std::span<const ops::Kernel> ApplyAdapterKernels() { return kKernels; }

}  // namespace pagemill::gpu
