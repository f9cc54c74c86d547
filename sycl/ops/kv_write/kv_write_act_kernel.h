#ifndef PAGEMILL_SYCL_OPS_KV_WRITE_KV_WRITE_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_KV_WRITE_KV_WRITE_ACT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/kv_write/kv_write_params.h"

// Element `i` of a block.
inline void StoreInBlock(ElementType type, void* block, int64_t i, float value) {
  switch (type) {
    case ElementType::kBF16:
      static_cast<uint16_t*>(block)[i] = pagemill::FloatToBf16(value);
      return;
    case ElementType::kF8E4M3:
      static_cast<uint8_t*>(block)[i] = pagemill::FloatToF8E4M3(value);
      return;
    default:
      static_cast<float*>(block)[i] = value;
  }
}

// `size` elements of a head, which has head_dim: zeros are behind them.
struct HeadElements {
  const Act* x;
  int64_t size;

  float At(int64_t d) const { return d < size ? Load(x + d) : 0.0f; }
};

// Row `row` of an int8 block (rows of K by head and token, then those of V): elements in whole
// units of the row's scale, `stride` apart.
inline void StoreInt8Row(const KvWriteParams& p, const HeadElements& head, char* block, int64_t row,
                         int8_t* elements, int64_t stride) {
  float largest = 0;
  bool finite = true;
  for (int64_t d = Lane(); d < p.head_dim; d += kLanes) {
    const float value = head.At(d);
    finite = finite && sycl::isfinite(value);
    largest = sycl::fmax(largest, sycl::fabs(value));
  }
  finite = sycl::all_of_group(SubGroup(), finite);
  largest = sycl::reduce_over_group(SubGroup(), largest, sycl::maximum<float>());
  const bool any = finite && largest >= 1e-30f;
  const float inverse = any ? 127.0f / largest : 0.0f;
  for (int64_t d = Lane(); d < p.head_dim; d += kLanes) {
    elements[d * stride] = any ? static_cast<int8_t>(sycl::rint(head.At(d) * inverse)) : 0;
  }
  if (Lane() != 0) return;
  const float scale = !finite ? __builtin_nanf("") : any ? largest / 127.0f : 0.0f;
  char* scales = block + 2 * p.heads * p.head_dim * p.block_size;
  // Scales begin at any multiple of the head dimension.
  const uint32_t bits = sycl::bit_cast<uint32_t>(scale);
  for (int i = 0; i < 4; ++i) scales[4 * row + i] = static_cast<char>(bits >> 8 * i);
}

// A sub-group for each head of K and of V of each token. Keys of a block lie side by side for each
// element of a head, values are rows.
PAGEMILL_KERNEL void kv_write_kernel(KvWriteParams p) {
  const int64_t token = GlobalSubGroup() / (2 * p.heads);
  if (token >= p.tokens || p.slots[token] < 0) return;
  const int64_t head = GlobalSubGroup() % p.heads;
  const bool is_v = GlobalSubGroup() / p.heads % 2 != 0;
  const int64_t offset = p.slots[token] % p.block_size;
  char* block = p.cache.Row<char>(p.slots[token] / p.block_size);
  const int64_t size = is_v ? p.value_dim : p.head_dim;
  const HeadElements elements{(is_v ? p.v : p.k).Row<const Act>(token) + head * size, size};
  const int64_t row = (is_v ? p.heads + head : head) * p.block_size + offset;
  const int64_t first = is_v ? row * p.head_dim : head * p.head_dim * p.block_size + offset;
  const int64_t stride = is_v ? 1 : p.block_size;
  if (p.type == ElementType::kI8) {
    StoreInt8Row(p, elements, block, row, reinterpret_cast<int8_t*>(block) + first, stride);
    return;
  }
  const float factor = is_v ? p.v_factor : p.k_factor;
  for (int64_t d = Lane(); d < p.head_dim; d += kLanes) {
    StoreInBlock(p.type, block, first + d * stride, elements.At(d) * factor);
  }
}

#endif  // PAGEMILL_SYCL_OPS_KV_WRITE_KV_WRITE_ACT_KERNEL_H_
