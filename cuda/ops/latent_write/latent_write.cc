#include "cc/ops/latent_write/latent_write.h"

#include "cc/ops/latent_write/latent_cache.h"
#include "cc/ops/latent_write/latent_f8_row.h"
#include "cuda/gpu_elements.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/latent_write/latent_pages.h"

namespace pagemill::gpu {
namespace {

// What is stored of the step's tokens, and where.
template <typename T>
struct StepLatents {
  Rows<const T> latent, rope;
  int64_t size;  // of latents
  const int32_t* slots;
  int32_t tokens_of_row, block_rows;

  PAGEMILL_DEVICE float Load(int64_t token, int64_t i) const {
    return ToFloat(i < size ? latent[token][i] : rope[token][i - size]);
  }
  // The row of the cache, counted from that of slot 0; -1 if the token is not stored.
  PAGEMILL_DEVICE int32_t RowOf(int64_t token) const {
    const int32_t slot = slots[token];
    return slot < 0 || (slot + 1) % tokens_of_row != 0 ? -1 : slot / tokens_of_row;
  }
};

template <typename T, typename Stored>
PAGEMILL_KERNEL StoreLatent(StepLatents<T> step, LatentPages<Stored> cache) {
  const int32_t row = step.RowOf(BlockIndex().x);
  if (row < 0) return;
  Stored* const stored = cache.Row(row / step.block_rows, row % step.block_rows);
  ForElements(cache.width, [&](int64_t token, int64_t i) {
    stored[i] = FromFloat<Stored>(step.Load(token, i));
  });
}

constexpr int kF8Threads = 256;

// A block for each token, a warp for each group of codes at a time.
template <typename T>
PAGEMILL_KERNEL StoreF8Latent(StepLatents<T> step, LatentF8Pages cache) {
  const int64_t token = BlockIndex().x;
  const int32_t row = step.RowOf(token);
  if (row < 0) return;
  const LatentF8Bytes stored = cache.Row(row / step.block_rows, row % step.block_rows);
  const int64_t codes = cache.parts.codes;
  const int warps = static_cast<int>(BlockSize().x) / WarpLanes();
  for (int64_t group = Warp(); group < cache.parts.groups(); group += warps) {
    const int64_t begin = group * ops::kLatentGroup, next = begin + ops::kLatentGroup;
    const int64_t end = next < codes ? next : codes;
    uint32_t largest = 0;
    for (int64_t i = begin + Lane(); i < end; i += WarpLanes()) {
      const uint32_t magnitude = FloatToBits(step.Load(token, i)) & 0x7fffffffu;
      largest = largest < magnitude ? magnitude : largest;
    }
    for (int bits = WarpLanes() / 2; bits > 0; bits /= 2) {
      const uint32_t other = ShuffleXor(AllLanes(), largest, bits);
      largest = largest < other ? other : largest;
    }
    const uint32_t scale = ops::LatentScaleBits(largest);
    if (Lane() == 0) stored.scales()[group] = scale;
    for (int64_t i = begin + Lane(); i < end; i += WarpLanes()) {
      stored.bytes[i] = ops::LatentCode(step.Load(token, i), scale);
    }
  }
  for (int64_t i = ThreadIndex().x; i < cache.parts.rest; i += BlockSize().x) {
    stored.rest()[i] = FromFloat<BFloat16>(step.Load(token, codes + i));
  }
}

template <typename T, typename Stored>
void Store(const ops::KernelContext& context, const StepLatents<T>& step, int64_t tokens,
           const LatentPages<Stored>& cache) {
  Launch(*context.stream, ShapeOfElements(tokens, cache.width), StoreLatent<T, Stored>, step,
         cache);
}

template <typename T>
void Store(const ops::KernelContext& context, const StepLatents<T>& step, int64_t tokens,
           const LatentF8Pages& cache) {
  Launch(*context.stream, {.blocks = {static_cast<uint32_t>(tokens)}, .threads = {kF8Threads}},
         StoreF8Latent<T>, step, cache);
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& latent = call.inputs[0];
  const TensorView& rope = call.inputs[1];
  const TensorView& cache = call.inputs[2];
  const int64_t size = latent.RowElements();
  const int64_t width = size + (ops::HasInput(call, /*input=*/1) ? rope.RowElements() : 0);
  WithActType(latent.dtype, [&]<typename T>(T) {
    const StepLatents<T> step = {RowsOf<const T>(latent),
                                 RowsOf<const T>(rope),
                                 size,
                                 call.batch->slot_mapping,
                                 ops::TokensOfRow(call, /*input=*/2),
                                 static_cast<int32_t>(cache.shape[1])};
    WithLatentPages(call, cache, width,
                    [&](const auto& pages) { Store(context, step, latent.shape[0], pages); });
  });
}

constexpr ops::Kernel kKernels[] = {{"latent_write", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> LatentWriteKernels() { return kKernels; }

}  // namespace pagemill::gpu
