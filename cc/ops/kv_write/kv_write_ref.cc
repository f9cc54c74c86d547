#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "cc/ops/kv_page.h"
#include "cc/ops/kv_write/int4_row.h"
#include "cc/ops/kv_write/kv_write.h"
#include "cc/tensor/float8.h"

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
  } else if (cache.dtype == DType::kF8E4M3) {
    cache.Row<uint8_t>(block)[index] = FloatToF8E4M3(value);
  } else {
    cache.Row<uint16_t>(block)[index] = ToBf16(value);
  }
}

// Row `row` of an int8 block: rows of K by head and token, then those of V. Elements are `stride`
// apart.
void StoreQuantized(std::byte* scales, int64_t row, const float* x, int64_t dims, int8_t* target,
                    int64_t stride) {
  float most = 0, scale = 0;
  bool finite = true;
  for (int64_t d = 0; d < dims; ++d) {
    finite = finite && std::isfinite(x[d]);
    most = std::max(most, std::fabs(x[d]));
  }
  const bool any = finite && most >= 1e-30f;
  if (any) scale = most / 127.0f;
  if (!finite) scale = std::numeric_limits<float>::quiet_NaN();
  const float inverse = any ? 127.0f / most : 0.0f;
  for (int64_t d = 0; d < dims; ++d) {
    target[d * stride] = any ? static_cast<int8_t>(std::nearbyint(x[d] * inverse)) : int8_t{0};
  }
  std::memcpy(scales + row * static_cast<int64_t>(sizeof(float)), &scale, sizeof(scale));
}

void StoreQuantizedToken(const KvWriteArgs& args, int64_t token, int64_t block, int64_t offset) {
  const int64_t heads = args.k.shape[1];
  const int64_t head_dim = args.k.shape[2];
  const int64_t block_size = args.batch->block_size;
  std::byte* scales = args.cache.Row<std::byte>(block) +
                      KvScalesOffsetBytes(DType::kI8, {heads, head_dim}, block_size);
  int8_t* elements = args.cache.Row<int8_t>(block);
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t v_row = (heads + h) * block_size + offset;
    StoreQuantized(scales, h * block_size + offset, args.k.Row<float>(token) + h * head_dim,
                   head_dim, elements + h * head_dim * block_size + offset * args.key.token,
                   args.key.element);
    const int64_t value_dim = args.v.shape[2];
    StoreQuantized(scales, v_row, args.v.Row<float>(token) + h * value_dim, value_dim,
                   elements + v_row * head_dim, 1);
    std::fill_n(elements + v_row * head_dim + value_dim, head_dim - value_dim, int8_t{0});
  }
}

// Row `row` of an int4 block, counted as for StoreQuantized: x, with zeros behind it. Byte i is at
// page[offset(i)].
template <typename Offset>
void StoreInt4(std::byte* scales, int64_t row, std::span<const float> x, int64_t head_dim,
               uint8_t* page, const Offset& offset) {
  std::vector<float> rotated(head_dim);
  std::copy(x.begin(), x.end(), rotated.begin());
  const int dims = static_cast<int>(head_dim);
  RotateRow(rotated.data(), dims, 1.0f / static_cast<float>(Int4Rotation(dims)));
  float most = 0, scale = 0;
  bool finite = true;
  for (const float element : rotated) {
    finite = finite && std::isfinite(element);
    most = std::max(most, std::fabs(element));
  }
  const bool any = finite && most >= 1e-30f;
  if (any) scale = most / kLargestInt4;
  if (!finite) scale = std::numeric_limits<float>::quiet_NaN();
  const auto code = [&](int64_t d) -> int {
    if (!any || d >= head_dim) return 0;
    return static_cast<int>(std::nearbyint(rotated[d] * (7.5f / most) + 7.5f));
  };
  for (int64_t d = 0; d < 2 * KvRowBytes(DType::kU4, head_dim); ++d) {
    if (IsInt4High(d)) continue;
    page[offset(Int4Byte(d))] = static_cast<uint8_t>(code(d) | code(d + 4) << 4);
  }
  std::memcpy(scales + row * static_cast<int64_t>(sizeof(float)), &scale, sizeof(scale));
}

void StoreInt4Token(const KvWriteArgs& args, int64_t token, int64_t block, int64_t offset) {
  const int64_t heads = args.k.shape[1], head_dim = args.k.shape[2], value_dim = args.v.shape[2];
  const int64_t block_size = args.batch->block_size;
  const int64_t row_bytes = KvRowBytes(DType::kU4, head_dim);
  uint8_t* const bytes = args.cache.Row<uint8_t>(block);
  std::byte* const scales = args.cache.Row<std::byte>(block) +
                            KvScalesOffsetBytes(DType::kU4, {heads, head_dim}, block_size);
  const auto of_key = [&](int64_t i) { return Int4KeyOffset(i, offset, block_size); };
  const auto of_value = [&](int64_t i) { return Int4ValueOffset(i, offset, row_bytes); };
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t v_row = (heads + h) * block_size + offset;
    const float* const k = args.k.Row<float>(token) + h * head_dim;
    const float* const v = args.v.Row<float>(token) + h * value_dim;
    StoreInt4(scales, h * block_size + offset, {k, static_cast<size_t>(head_dim)}, head_dim,
              bytes + h * row_bytes * block_size, of_key);
    StoreInt4(scales, v_row, {v, static_cast<size_t>(value_dim)}, head_dim,
              bytes + (heads + h) * row_bytes * block_size, of_value);
  }
}

}  // namespace

void KvWriteReference(const OpCall& call, KernelContext&) {
  const KvWriteArgs args = ToKvWriteArgs(call);
  const int64_t heads = args.k.shape[1];
  const int64_t head_dim = args.k.shape[2];
  const int64_t value_dim = args.v.shape[2];
  const int64_t block_size = args.batch->block_size;
  for (int64_t t = 0; t < args.k.shape[0]; ++t) {
    const int64_t slot = args.batch->slot_mapping[t];
    if (slot < 0) continue;
    const int64_t block = slot / block_size;
    const int64_t offset = slot % block_size;
    if (args.cache.dtype == DType::kI8) {
      StoreQuantizedToken(args, t, block, offset);
      continue;
    }
    if (args.cache.dtype == DType::kU4) {
      StoreInt4Token(args, t, block, offset);
      continue;
    }
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t d = 0; d < head_dim; ++d) {
        const int64_t k_index =
            h * head_dim * block_size + d * args.key.element + offset * args.key.token;
        const int64_t v_index = ((heads + h) * block_size + offset) * head_dim + d;
        StoreElement(args.cache, block, k_index,
                     args.k.Row<float>(t)[h * head_dim + d] * (1.0f / args.scales.k));
        const float v = d < value_dim ? args.v.Row<float>(t)[h * value_dim + d] : 0.0f;
        StoreElement(args.cache, block, v_index, v * (1.0f / args.scales.v));
      }
    }
  }
}

}  // namespace pagemill::ops
