// `latent_write` a row at a time.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cc/ops/latent_write/latent_cache.h"
#include "cc/ops/latent_write/latent_write.h"
#include "cc/ops/row_split.h"
#include "cc/ops/vec/vec_portable.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops::latent_write {
namespace {

// The two operands of a token, side by side.
struct TokenRow {
  const float* latent;
  int64_t latent_size;
  const float* rope;
  int64_t rope_size;

  float operator[](int64_t i) const { return i < latent_size ? latent[i] : rope[i - latent_size]; }
};

TokenRow RowOf(const OpCall& call, int64_t token) {
  const TensorView& latent = call.inputs[0];
  const TensorView& rope = call.inputs[1];
  TokenRow row = {latent.Row<const float>(token), latent.RowElements(), nullptr, 0};
  if (rope.rank > 0) {
    row.rope = rope.Row<const float>(token);
    row.rope_size = rope.RowElements();
  }
  return row;
}

template <typename Element>
void StoreElements(const float* from, int64_t count, Element* to) {
  int64_t i = 0;
  for (; i + Vec::kLanes <= count; i += Vec::kLanes) Vec::Store(to + i, Vec::Load(from + i));
  const int rest = static_cast<int>(count - i);
  if (rest > 0) Vec::StoreN(to + i, Vec::LoadN(from + i, rest), rest);
}

template <typename Element>
void StoreRow(const OpCall&, const TokenRow& row, std::byte* to) {
  auto* const elements = reinterpret_cast<Element*>(to);
  StoreElements(row.latent, row.latent_size, elements);
  StoreElements(row.rope, row.rope_size, elements + row.latent_size);
}

void StoreF8Row(const OpCall& call, const TokenRow& row, std::byte* to) {
  const int64_t width = row.latent_size + row.rope_size;
  const LatentF8Row parts = LatentF8RowOf(call, width);
  for (int64_t group = 0; group < parts.groups(); ++group) {
    const int64_t begin = group * kLatentGroup;
    const int64_t count = std::min(parts.codes - begin, kLatentGroup);
    float values[kLatentGroup];
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; ++i) {
      values[i] = row[begin + i];
      largest = std::max(largest, __builtin_bit_cast(uint32_t, values[i]) & 0x7fffffffu);
    }
    const uint32_t scale = LatentScaleBits(largest);
    std::memcpy(to + parts.scales_offset() + 4 * group, &scale, sizeof(scale));
    for (int64_t i = 0; i < count; ++i) {
      to[begin + i] = static_cast<std::byte>(LatentCode(values[i], scale));
    }
  }
  auto* const rest = reinterpret_cast<uint16_t*>(to + parts.rest_offset());
  for (int64_t i = 0; i < parts.rest; ++i) rest[i] = FloatToBf16(row[parts.codes + i]);
}

}  // namespace

void RunPortable(const OpCall& call, KernelContext& context) {
  const TensorView& cache = call.inputs[2];
  const int64_t every = TokensOfRow(call, /*input=*/2), rows = cache.shape[1];
  const int64_t row_bytes = RowBytes(cache.dtype, cache.shape[2]);
  const auto store = cache.dtype == DType::kF32    ? StoreRow<float>
                     : cache.dtype == DType::kBF16 ? StoreRow<uint16_t>
                                                   : StoreF8Row;
  context.pool->ParallelFor(
      call.batch->num_tokens, RowsPerChunk(cache.shape[2]), [&](int64_t begin, int64_t end, int) {
        for (int64_t t = begin; t < end; ++t) {
          const int64_t slot = call.batch->slot_mapping[t];
          if (slot < 0 || (slot + 1) % every != 0) continue;
          const int64_t row = slot / every;
          store(call, RowOf(call, t), cache.Row<std::byte>(row / rows) + row % rows * row_bytes);
        }
      });
}

}  // namespace pagemill::ops::latent_write
