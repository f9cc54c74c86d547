#include "cc/ops/kv_write/kv_write.h"

#include "cc/ops/kv_page.h"
#include "cc/ops/kv_write/kv_write_run.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/row_split.h"

namespace pagemill::ops {
namespace {

Status CheckKvWrite(const OpCall& call) {
  OperandCheck check("kv_write", call, /*inputs=*/3, /*outputs=*/0);
  check.Input(0, "k", DType::kF32, "T,K,D");
  check.Input(1, "v", DType::kF32, "T,K,D");
  if (!check.ok()) return check.Result();
  const TensorView& cache = call.inputs[2];
  check.Require(IsKvDType(cache.dtype), "cache must be f32, bf16, f8_e4m3 or i8, got " +
                                            std::string(Info(cache.dtype).name));
  if (!check.ok()) return check.Result();
  check.Input(2, "cache", cache.dtype, "B,E");
  check.Require(call.batch != nullptr && call.batch->block_size > 0,
                "needs the batch's block_size when it is checked");
  if (!check.ok()) return check.Result();
  const int64_t row_elements = KvRowElements(cache.dtype, check.Dim('D'));
  const int64_t block_elements = 2 * check.Dim('K') * row_elements * call.batch->block_size;
  check.Require(check.Dim('E') == block_elements,
                "a block of the cache must hold 2 * " + std::to_string(check.Dim('K')) +
                    " heads * " + std::to_string(row_elements) + " elements * " +
                    std::to_string(call.batch->block_size) + " tokens, got " +
                    std::to_string(check.Dim('E')) + " elements");
  return check.Result();
}

using StoreFunction = void (*)(const KvWriteRun& run);

StoreFunction StoreFor(const KvWriteKernel& kernel, DType cache) {
  if (cache == DType::kF32) return kernel.f32;
  if (cache == DType::kBF16) return kernel.bf16;
  return cache == DType::kF8E4M3 ? kernel.f8 : kernel.int8;
}

// Tokens [first, first + count) go to consecutive slots of one block.
void StoreTokens(const KvWriteArgs& args, const KvWriteKernel& kernel, int64_t first,
                 int32_t count) {
  const int64_t heads = args.k.shape[1];
  const int64_t head_dim = args.k.shape[2];
  const int32_t block_size = args.batch->block_size;
  const int32_t slot = args.batch->slot_mapping[first];
  const int64_t element_bytes = RowBytes(args.cache.dtype, 1);
  const int64_t page_bytes = head_dim * block_size * element_bytes;
  std::byte* block = args.cache.Row<std::byte>(slot / block_size);
  KvWriteRun run;
  run.k_stride = args.k.row_stride_bytes / static_cast<int64_t>(sizeof(float));
  run.v_stride = args.v.row_stride_bytes / static_cast<int64_t>(sizeof(float));
  run.tokens = count;
  run.offset = slot % block_size;
  run.block_size = block_size;
  run.head_dim = static_cast<int32_t>(head_dim);
  std::byte* scales = block + KvScalesOffsetBytes({heads, head_dim}, block_size);
  const int64_t scales_bytes = block_size * static_cast<int64_t>(sizeof(float));
  for (int64_t h = 0; h < heads; ++h) {
    run.k = args.k.Row<float>(first) + h * head_dim;
    run.v = args.v.Row<float>(first) + h * head_dim;
    run.k_page = block + h * page_bytes;
    run.v_page = block + (heads + h) * page_bytes;
    run.k_scales = scales + h * scales_bytes;
    run.v_scales = scales + (heads + h) * scales_bytes;
    StoreFor(kernel, args.cache.dtype)(run);
  }
}

// Does token t continue the run of token t - 1?
bool Continues(const BatchView& batch, int64_t t) {
  const int32_t slot = batch.slot_mapping[t];
  return t > 0 && slot > 0 && slot == batch.slot_mapping[t - 1] + 1 && slot % batch.block_size != 0;
}

// A run belongs to the chunk that its first token lies in, so that blocks are not torn apart where
// two threads' chunks meet.
template <const KvWriteKernel* kKernel>
void Run(const OpCall& call, KernelContext& context) {
  const KvWriteArgs args = ToKvWriteArgs(call);
  const BatchView& batch = *args.batch;
  const int64_t tokens = args.k.shape[0];
  const int64_t grain = RowsPerChunk(args.k.RowElements());
  context.pool->ParallelFor(tokens, grain, [&](int64_t begin, int64_t end, int) {
    int64_t t = begin;
    while (t < end && Continues(batch, t)) ++t;
    while (t < end) {
      int64_t next = t + 1;
      while (next < tokens && Continues(batch, next)) ++next;
      if (batch.slot_mapping[t] >= 0) {
        StoreTokens(args, *kKernel, t, static_cast<int32_t>(next - t));
      }
      t = next;
    }
  });
}

constexpr KernelRow kRows[] = {
#if defined(__x86_64__)
    {"kv_write", "avx512", 30,
     [](const device::Capabilities& caps, const OpCall&) { return caps.avx512; },
     Run<&kKvWriteAvx512>},
    {"kv_write", "avx2", 20,
     [](const device::Capabilities& caps, const OpCall&) { return caps.avx2; }, Run<&kKvWriteAvx2>},
#endif
    {"kv_write", "portable", 10, [](const device::Capabilities&, const OpCall&) { return true; },
     Run<&kKvWritePortable>},
    {"kv_write", "reference", 0, [](const device::Capabilities&, const OpCall&) { return true; },
     KvWriteReference},
};

constexpr OpDefinition kDefinition{"kv_write", CheckKvWrite, kRows};

}  // namespace

KvWriteArgs ToKvWriteArgs(const OpCall& call) {
  return {.k = call.inputs[0], .v = call.inputs[1], .cache = call.inputs[2], .batch = call.batch};
}

const OpDefinition& KvWriteOp() { return kDefinition; }

}  // namespace pagemill::ops
