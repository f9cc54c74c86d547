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

void StoreElement(DType type, std::byte* page, int64_t index, float value) {
  if (type == DType::kF32) {
    reinterpret_cast<float*>(page)[index] = value;
  } else if (type == DType::kF8E4M3) {
    reinterpret_cast<uint8_t*>(page)[index] = FloatToF8E4M3(value);
  } else {
    reinterpret_cast<uint16_t*>(page)[index] = ToBf16(value);
  }
}

// Stores x as a row of int8, whose elements are `stride` apart, and its scale: that of row `row`,
// counted by head and token, those of K before those of V.
void StoreInt8(std::byte* scales, int64_t row, std::span<const float> x, int8_t* target,
               int64_t stride) {
  const auto dims = static_cast<int64_t>(x.size());
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

// Stores x, with zeros behind it, as a row of int4, and its scale, as StoreInt8. Byte i is at
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

// Stores token `token` at slot `slot`.
class TokenStore {
 public:
  TokenStore(const KvWriteArgs& args, int64_t token, int64_t slot)
      : args_(args),
        types_(KvTypesOf(args.cache.dtype)),
        token_(token),
        block_size_(args.batch->block_size),
        offset_(slot % block_size_),
        heads_{.kv_heads = args.k.shape[1], .head_dim = args.k.shape[2]},
        block_(args.cache.Row<std::byte>(slot / block_size_)),
        values_(block_ + KvValuesOffsetBytes(args.cache.dtype, heads_, block_size_)),
        scales_(block_ + KvScalesOffsetBytes(args.cache.dtype, heads_, block_size_)) {}

  void StoreKey(int64_t head) const {
    const std::span<const float> k = RowOf(args_.k, head);
    std::byte* const page = Page(block_, types_.key, head);
    const int64_t row = head * block_size_ + offset_;
    const int64_t first = offset_ * args_.key.token;
    if (types_.key == DType::kU4) {
      StoreInt4(scales_, row, k, heads_.head_dim, reinterpret_cast<uint8_t*>(page),
                [&](int64_t i) { return Int4KeyOffset(i, offset_, block_size_); });
    } else if (types_.key == DType::kI8) {
      StoreInt8(scales_, row, k, reinterpret_cast<int8_t*>(page) + first, args_.key.element);
    } else {
      for (int64_t d = 0; d < heads_.head_dim; ++d) {
        StoreElement(types_.key, page, first + d * args_.key.element,
                     k[d] * (1.0f / args_.scales.k));
      }
    }
  }

  void StoreValue(int64_t head) const {
    const std::span<const float> v = RowOf(args_.v, head);
    std::byte* const page = Page(values_, types_.value, head);
    const int64_t row = (heads_.kv_heads + head) * block_size_ + offset_;
    const int64_t dims = heads_.head_dim, first = offset_ * dims;
    if (types_.value == DType::kU4) {
      const int64_t row_bytes = KvRowBytes(DType::kU4, dims);
      StoreInt4(scales_, row, v, dims, reinterpret_cast<uint8_t*>(page),
                [&](int64_t i) { return Int4ValueOffset(i, offset_, row_bytes); });
    } else if (types_.value == DType::kI8) {
      int8_t* const to = reinterpret_cast<int8_t*>(page) + first;
      StoreInt8(scales_, row, v, to, /*stride=*/1);
      std::fill(to + v.size(), to + dims, int8_t{0});
    } else {
      for (int64_t d = 0; d < dims; ++d) {
        const float x = d < static_cast<int64_t>(v.size()) ? v[d] : 0.0f;
        StoreElement(types_.value, page, first + d, x * (1.0f / args_.scales.v));
      }
    }
  }

 private:
  std::span<const float> RowOf(const TensorView& rows, int64_t head) const {
    const int64_t dims = rows.shape[2];
    return {rows.Row<float>(token_) + head * dims, static_cast<size_t>(dims)};
  }
  // The page of a head, of those of rows of type `row` that begin at `first`.
  std::byte* Page(std::byte* first, DType row, int64_t head) const {
    return first + head * block_size_ * KvRowBytes(row, heads_.head_dim);
  }

  const KvWriteArgs& args_;
  const KvTypes types_;
  const int64_t token_, block_size_, offset_;
  const KvHeads heads_;
  std::byte* const block_;
  std::byte* const values_;
  std::byte* const scales_;
};

}  // namespace

void KvWriteReference(const OpCall& call, KernelContext&) {
  const KvWriteArgs args = ToKvWriteArgs(call);
  for (int64_t t = 0; t < args.k.shape[0]; ++t) {
    const int64_t slot = args.batch->slot_mapping[t];
    if (slot < 0) continue;
    const TokenStore store(args, t, slot);
    for (int64_t h = 0; h < args.k.shape[1]; ++h) {
      store.StoreKey(h);
      store.StoreValue(h);
    }
  }
}

}  // namespace pagemill::ops
