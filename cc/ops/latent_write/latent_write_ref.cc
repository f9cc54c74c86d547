// The reference of `latent_write`: one element at a time.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cc/ops/latent_write/latent_cache.h"
#include "cc/ops/latent_write/latent_write.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops::latent_write {
namespace {

std::vector<float> ValuesOf(const OpCall& call, int64_t token) {
  std::vector<float> values;
  for (const TensorView& part : call.inputs.first(2)) {
    if (part.rank == 0) continue;
    const float* const row = part.Row<const float>(token);
    values.insert(values.end(), row, row + part.RowElements());
  }
  return values;
}

// The scale of a group as the contract says it.
float ScaleOf(const float* values, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) return __builtin_nanf("");
    largest = std::max(largest, std::abs(values[i]));
  }
  float scale = 0x1p-100f;
  while (largest / scale > 448 && scale < 0x1p100f) scale *= 2;
  return scale;
}

void StoreF8Row(const std::vector<float>& values, const LatentF8Row& row, std::byte* to) {
  for (int64_t begin = 0; begin < row.codes; begin += kLatentGroup) {
    const int64_t count = std::min(kLatentGroup, row.codes - begin);
    const float scale = ScaleOf(values.data() + begin, count);
    std::memcpy(to + row.scales_offset() + 4 * (begin / kLatentGroup), &scale, sizeof(scale));
    for (int64_t i = begin; i < begin + count; ++i) {
      const float value = values[static_cast<size_t>(i)] / scale;
      to[i] = static_cast<std::byte>(std::isnan(scale) ? 0 : FloatToF8E4M3(value));
    }
  }
  for (int64_t i = 0; i < row.rest; ++i) {
    const uint16_t bits = FloatToBf16(values[static_cast<size_t>(row.codes + i)]);
    std::memcpy(to + row.rest_offset() + 2 * i, &bits, sizeof(bits));
  }
}

}  // namespace

void RunReference(const OpCall& call, KernelContext&) {
  const TensorView& cache = call.inputs[2];
  const int64_t rows = cache.shape[1], every = TokensOfRow(call, /*input=*/2);
  for (int64_t t = 0; t < call.batch->num_tokens; ++t) {
    const int64_t slot = call.batch->slot_mapping[t];
    if (slot < 0 || (slot + 1) % every != 0) continue;
    const int64_t page = slot / every / rows, first = slot / every % rows * cache.shape[2];
    const std::vector<float> values = ValuesOf(call, t);
    const auto width = static_cast<int64_t>(values.size());
    if (cache.dtype == DType::kF8E4M3) {
      StoreF8Row(values, LatentF8RowOf(call, width), cache.Row<std::byte>(page) + first);
      continue;
    }
    for (int64_t i = 0; i < width; ++i) {
      const float value = values[static_cast<size_t>(i)];
      if (cache.dtype == DType::kF32) {
        cache.Row<float>(page)[first + i] = value;
      } else {
        cache.Row<uint16_t>(page)[first + i] = FloatToBf16(value);
      }
    }
  }
}

}  // namespace pagemill::ops::latent_write
