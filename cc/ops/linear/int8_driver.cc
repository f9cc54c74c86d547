#include "cc/ops/linear/int8_driver.h"

#include <algorithm>

#include "cc/ops/linear/linear_driver.h"

namespace pagemill::ops::linear {
namespace {

// Weight rows that one thread takes at a time in the direct path: see linear_driver.cc.
constexpr int64_t kDirectGrainRows = 16;

// Elements of x that a thread quantizes at a time. Below twice this, waking a second thread costs
// more than it saves: a row of 576 takes some 50 ns.
constexpr int64_t kQuantizeGrain = 16384;

// Bytes between quantized rows. An odd number of groups: rows a power of two apart would fall into
// the same few sets of the L1 cache.
int64_t StrideOfX(const Int8KernelSet& kernels, int64_t k) {
  const int64_t groups = (k + kGroupElements - 1) / kGroupElements;
  return (groups | 1) * GroupBytesOfX(kernels.planes);
}

void QuantizeRows(const Int8KernelSet& kernels, const Operands& o, uint8_t* out,
                  KernelContext& context) {
  const int64_t stride = StrideOfX(kernels, o.k);
  const auto quantize = [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n) {
      kernels.quantize(o.dtype, o.x + n * o.x_stride, o.k, out + n * stride);
    }
  };
  if (o.n * o.k < 2 * kQuantizeGrain) return quantize(0, o.n, 0);
  context.pool->ParallelFor(o.n, std::max<int64_t>(1, kQuantizeGrain / o.k), quantize);
}

}  // namespace

void RunInt8KernelSet(const Int8KernelSet& kernels, const OpCall& call, KernelContext& context) {
  const Operands o = ReadOperands(call);
  if (o.n == 0 || o.m == 0) return;
  uint8_t* const x = reinterpret_cast<uint8_t*>(context.workspace.data());
  QuantizeRows(kernels, o, x, context);
  const Int8Operands quantized = {o, x, StrideOfX(kernels, o.k)};
  if (o.n <= kernels.max_direct_n) {
    const int64_t grains = (o.m + kDirectGrainRows - 1) / kDirectGrainRows;
    context.pool->ParallelFor(grains, 1, [&](int64_t begin, int64_t end, int) {
      kernels.direct(quantized, begin * kDirectGrainRows, std::min(end * kDirectGrainRows, o.m));
    });
    return;
  }
  const int64_t panel_bytes = kernels.panel_bytes(o.dtype, o.k);
  const int64_t panels = (o.m + kInt8PanelRows - 1) / kInt8PanelRows;
  uint8_t* const buffers = x + o.n * StrideOfX(kernels, o.k);
  context.pool->ParallelFor(panels, 1, [&](int64_t begin, int64_t end, int worker) {
    uint8_t* const panel = buffers + worker * panel_bytes;
    for (int64_t p = begin; p < end; ++p) {
      const int64_t m_begin = p * kInt8PanelRows;
      const int64_t m_end = std::min(m_begin + kInt8PanelRows, o.m);
      kernels.pack(o, m_begin, m_end, panel);
      kernels.multiply(quantized, panel, m_begin, m_end);
    }
  });
}

int64_t Int8WorkspaceBytes(const Int8KernelSet& kernels, const OpCall& call, int32_t num_threads) {
  const TensorView& w = call.inputs[1];
  return call.inputs[0].shape[0] * StrideOfX(kernels, w.shape[1]) +
         num_threads * kernels.panel_bytes(w.dtype, w.shape[1]);
}

}  // namespace pagemill::ops::linear
