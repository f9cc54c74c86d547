#include "cc/ops/kv_write/kv_write_tokens.h"

#include "cc/ops/kv_page.h"
#include "cc/ops/row_split.h"

namespace pagemill::ops {
namespace {

const KvRowStore& StoreOf(const KvWriteKernel& kernel, DType row) {
  if (row == DType::kF32) return kernel.f32;
  if (row == DType::kBF16) return kernel.bf16;
  if (row == DType::kF8E4M3) return kernel.f8;
  return row == DType::kU4 ? kernel.int4 : kernel.int8;
}

}  // namespace

int64_t KvTokensPerChunk(const BatchView& batch, int64_t elements) {
  // If each token belongs to another request, its key is scattered down a column of a page that is
  // in no CPU cache: 0.5 us for 192 elements of K and of V.
  constexpr int64_t kColdFactor = 8;
  const bool runs = batch.num_tokens > batch.num_requests;
  return RowsPerChunk(runs ? elements : elements * kColdFactor);
}

void StoreKvTokens(const KvWriteArgs& args, const KvWriteKernel& kernel, int64_t first,
                   int32_t count) {
  const int64_t heads = args.k.shape[1];
  const int64_t head_dim = args.k.shape[2];
  const int32_t block_size = args.batch->block_size;
  const int32_t slot = args.batch->slot_mapping[first];
  const DType dtype = args.cache.dtype;
  const KvHeads of_block{.kv_heads = heads, .head_dim = head_dim};
  const auto [key_type, value_type] = KvTypesOf(dtype);
  const int64_t k_page_bytes = KvRowBytes(key_type, head_dim) * block_size;
  const int64_t v_page_bytes = KvRowBytes(value_type, head_dim) * block_size;
  std::byte* block = args.cache.Row<std::byte>(slot / block_size);
  KvWriteRun run;
  run.k_stride = args.k.row_stride_bytes / static_cast<int64_t>(sizeof(float));
  run.v_stride = args.v.row_stride_bytes / static_cast<int64_t>(sizeof(float));
  run.tokens = count;
  run.offset = slot % block_size;
  run.block_size = block_size;
  run.head_dim = static_cast<int32_t>(head_dim);
  run.value_dim = static_cast<int32_t>(args.v.shape[2]);
  run.k_inverse_scale = 1.0f / args.scales.k;
  run.v_inverse_scale = 1.0f / args.scales.v;
  std::byte* const values = block + KvValuesOffsetBytes(dtype, of_block, block_size);
  std::byte* const scales = block + KvScalesOffsetBytes(dtype, of_block, block_size);
  const int64_t scales_bytes = block_size * static_cast<int64_t>(sizeof(float));
  for (int64_t h = 0; h < heads; ++h) {
    run.k = args.k.Row<float>(first) + h * head_dim;
    run.v = args.v.Row<float>(first) + h * args.v.shape[2];
    run.k_page = block + h * k_page_bytes;
    run.v_page = values + h * v_page_bytes;
    run.k_scales = scales + h * scales_bytes;
    run.v_scales = scales + (heads + h) * scales_bytes;
    StoreOf(kernel, key_type).keys(run);
    StoreOf(kernel, value_type).values(run);
  }
}

}  // namespace pagemill::ops
