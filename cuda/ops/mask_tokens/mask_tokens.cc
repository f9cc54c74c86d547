#include "cc/ops/sample/row_draw.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

constexpr uint32_t kThreads = 256;
constexpr int64_t kColumns = 4096;  // for each block
constexpr int64_t kMaskWord = offsetof(ops::RowDraw, mask) / sizeof(int32_t);

PAGEMILL_KERNEL MaskRow(Rows<const float> x, Rows<const int32_t> draws, Rows<const int32_t> masks,
                        Rows<float> y, int64_t size) {
  const int64_t row = BlockIndex().x;
  const int64_t begin = BlockIndex().y * kColumns;
  const int64_t end = begin + kColumns < size ? begin + kColumns : size;
  const int32_t mask = draws[row][kMaskWord];
  for (int64_t i = begin + ThreadIndex().x; i < end; i += kThreads) {
    const float value = x[row][i];
    const bool allowed =
        mask < 0 || (static_cast<uint32_t>(masks[mask][i / 32]) >> (i % 32) & 1u) != 0;
    y[row][i] = allowed || !(value < INFINITY) ? value : -INFINITY;
  }
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const int64_t size = x.shape[1];
  Launch(*context.stream,
         {.blocks = {static_cast<uint32_t>(x.shape[0]), DivideUp(size, kColumns)},
          .threads = {kThreads}},
         MaskRow, RowsOf<const float>(x), RowsOf<const int32_t>(call.inputs[1]),
         RowsOf<const int32_t>(call.inputs[2]), RowsOf<float>(call.outputs[0]), size);
}

constexpr ops::Kernel kKernels[] = {{"mask_tokens", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> MaskTokensKernels() { return kKernels; }

}  // namespace pagemill::gpu
