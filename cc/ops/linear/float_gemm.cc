#include "cc/ops/linear/float_gemm.h"

#include <algorithm>

namespace pagemill::ops::linear {
namespace {

// Weight rows that one thread takes at a time in the direct path: about 6 KB of q4_1 at K = 576,
// some 300 ns; a multiple of the register tile.
constexpr int64_t kDirectGrainRows = 16;

// A slice stays in L2 (1 to 2 MiB on server cores) beside the rows of x that pass by.
constexpr int64_t kMaxFloatBytes = 512 << 10;
constexpr int64_t kMinFloatRows = 8;
// Slices per thread, so that a thread that loses its core for a while delays little.
constexpr int64_t kSlicesPerThread = 6;
constexpr int64_t kLineBytes = 64;

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int64_t FloatRowCount(int64_t m, int64_t k, int32_t num_threads) {
  const int64_t fitting = kMaxFloatBytes / FloatStride(k);
  const int64_t balanced = m / (num_threads * kSlicesPerThread);
  const int64_t rows = std::clamp(std::min(fitting, balanced), kMinFloatRows, kMaxFloatRows);
  return rows / kMinFloatRows * kMinFloatRows;
}

void RunDirect(const FloatGemm& kernels, const Operands& o, KernelContext& context) {
  const int64_t grains = (o.m + kDirectGrainRows - 1) / kDirectGrainRows;
  context.pool->ParallelFor(grains, 1, [&](int64_t begin, int64_t end, int) {
    kernels.direct(o, begin * kDirectGrainRows, std::min(end * kDirectGrainRows, o.m));
  });
}

void RunTiled(const FloatGemm& kernels, const Operands& o, KernelContext& context) {
  const int32_t num_threads = context.pool->num_threads();
  const int64_t rows = FloatRowCount(o.m, o.k, num_threads);
  const int64_t stride = FloatStride(o.k);
  const int64_t slices = (o.m + rows - 1) / rows;
  context.pool->ParallelFor(slices, 1, [&](int64_t begin, int64_t end, int worker) {
    uint8_t* buffer = reinterpret_cast<uint8_t*>(context.workspace.data()) + worker * rows * stride;
    for (int64_t p = begin; p < end; ++p) {
      const int64_t m_begin = p * rows;
      const int64_t m_end = std::min(m_begin + rows, o.m);
      const uint8_t* weights = o.weights + m_begin * o.weight_stride;
      if (o.dtype == DType::kF32) {
        kernels.multiply(o, {weights, o.weight_stride, m_begin, m_end});
        continue;
      }
      for (int64_t m = 0; m < m_end - m_begin; ++m) {
        kernels.dequantize(o.dtype, weights + m * o.weight_stride, o.k,
                           reinterpret_cast<float*>(buffer + m * stride));
      }
      kernels.multiply(o, {buffer, stride, m_begin, m_end});
    }
  });
}

}  // namespace

int64_t FloatStride(int64_t k) {
  const int64_t lines = RoundUp(k * 4, kLineBytes) / kLineBytes;
  return (lines | 1) * kLineBytes;
}

Operands ReadOperands(const OpCall& call, size_t index) {
  const TensorView& x = call.inputs[0];
  const TensorView& w = call.inputs[1 + 2 * index];
  const TensorView& y = call.outputs[index];
  const size_t bias = 2 + 2 * index;
  Operands o;
  o.dtype = w.dtype;
  o.weights = w.Data<const uint8_t>();
  o.weight_stride = w.row_stride_bytes;
  const bool has_bias = bias < call.inputs.size() && call.inputs[bias].rank > 0;
  o.bias = has_bias ? call.inputs[bias].Data<const float>() : nullptr;
  o.x = x.Data<const float>();
  o.x_stride = x.row_stride_bytes / static_cast<int64_t>(sizeof(float));
  o.y = y.Data<float>();
  o.y_stride = y.row_stride_bytes / static_cast<int64_t>(sizeof(float));
  o.n = x.shape[0];
  o.m = w.shape[0];
  o.k = w.shape[1];
  return o;
}

void RunFloatGemm(const FloatGemm& kernels, const OpCall& call, KernelContext& context) {
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const Operands o = ReadOperands(call, i);
    if (o.n == 0 || o.m == 0) continue;
    if (o.n <= kernels.max_direct_n) {
      RunDirect(kernels, o, context);
    } else {
      RunTiled(kernels, o, context);
    }
  }
}

int64_t FloatGemmWorkspaceBytes(const OpCall& call, int32_t num_threads) {
  if (call.inputs[1].dtype == DType::kF32) return 0;
  int64_t most = 0;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const TensorView& w = call.inputs[1 + 2 * i];
    most = std::max(most,
                    FloatRowCount(w.shape[0], w.shape[1], num_threads) * FloatStride(w.shape[1]));
  }
  return num_threads * most;
}

}  // namespace pagemill::ops::linear
