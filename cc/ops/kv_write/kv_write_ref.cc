#include <bit>

#include "cc/ops/kv_write/kv_write.h"

namespace pagemill::ops {
namespace {

uint16_t ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value) return static_cast<uint16_t>((bits | 0x400000) >> 16);
  const uint32_t half = 0x7fff + ((bits >> 16) & 1);  // ties to even
  return static_cast<uint16_t>((bits + half) >> 16);
}

void StoreElement(const TensorView& cache, int64_t block, int64_t index, float value) {
  if (cache.dtype == DType::kF32) {
    cache.Row<float>(block)[index] = value;
  } else {
    cache.Row<uint16_t>(block)[index] = ToBf16(value);
  }
}

}  // namespace

void KvWriteReference(const OpCall& call, KernelContext&) {
  const KvWriteArgs args = ToKvWriteArgs(call);
  const int64_t heads = args.k.shape[1];
  const int64_t head_dim = args.k.shape[2];
  const int64_t block_size = args.batch->block_size;
  for (int64_t t = 0; t < args.k.shape[0]; ++t) {
    const int64_t slot = args.batch->slot_mapping[t];
    if (slot < 0) continue;
    const int64_t block = slot / block_size;
    const int64_t offset = slot % block_size;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t d = 0; d < head_dim; ++d) {
        const int64_t k_index = (h * head_dim + d) * block_size + offset;
        const int64_t v_index = ((heads + h) * block_size + offset) * head_dim + d;
        StoreElement(args.cache, block, k_index, args.k.Row<float>(t)[h * head_dim + d]);
        StoreElement(args.cache, block, v_index, args.v.Row<float>(t)[h * head_dim + d]);
      }
    }
  }
}

}  // namespace pagemill::ops
