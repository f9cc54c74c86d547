#include "cc/ops/latent_write/latent_cache.h"
#include "cc/ops/latent_write/latent_write.h"

#include "cuda/gpu_elements.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

template <typename T, typename Stored>
PAGEMILL_KERNEL StoreLatent(Rows<const T> latent, Rows<const T> rope, Rows<Stored> pages,
                            const int32_t* slots, int32_t tokens_of_row, int32_t block_rows,
                            int64_t size, int64_t width) {
  const int32_t slot = slots[BlockIndex().x];
  if (slot < 0 || (slot + 1) % tokens_of_row != 0) return;
  const int32_t index = slot / tokens_of_row;
  Stored* const stored = pages[index / block_rows] + index % block_rows * width;
  ForElements(width, [&](int64_t row, int64_t i) {
    stored[i] = FromFloat<Stored>(ToFloat(i < size ? latent[row][i] : rope[row][i - size]));
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& latent = call.inputs[0];
  const TensorView& rope = call.inputs[1];
  const TensorView& cache = call.inputs[2];
  WithActType(latent.dtype, [&]<typename T>(T) {
    const auto store = [&]<typename Stored>(Stored) {
      Launch(*context.stream, ShapeOfElements(latent.shape[0], cache.shape[2]),
             StoreLatent<T, Stored>, RowsOf<const T>(latent), RowsOf<const T>(rope),
             RowsOf<Stored>(cache), call.batch->slot_mapping, ops::TokensOfRow(call, /*input=*/2),
             cache.shape[1], latent.RowElements(), cache.shape[2]);
    };
    cache.dtype == DType::kF32 ? store(float{}) : store(BFloat16{});
  });
}

constexpr ops::Kernel kKernels[] = {{"latent_write", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> LatentWriteKernels() { return kKernels; }

}  // namespace pagemill::gpu
