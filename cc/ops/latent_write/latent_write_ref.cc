// The reference of `latent_write`: one element at a time.
#include <cstdint>

#include "cc/ops/latent_write/latent_cache.h"
#include "cc/ops/latent_write/latent_write.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops::latent_write {

void RunReference(const OpCall& call, KernelContext&) {
  const TensorView& cache = call.inputs[2];
  const int64_t rows = cache.shape[1], every = TokensOfRow(call, /*input=*/2);
  for (int64_t t = 0; t < call.batch->num_tokens; ++t) {
    const int64_t slot = call.batch->slot_mapping[t];
    if (slot < 0 || (slot + 1) % every != 0) continue;
    const int64_t row = slot / every;
    int64_t index = row % rows * cache.shape[2];
    for (const TensorView& part : call.inputs.first(2)) {
      if (part.rank == 0) continue;
      for (int64_t i = 0; i < part.RowElements(); ++i, ++index) {
        const float value = part.Row<const float>(t)[i];
        if (cache.dtype == DType::kF32) {
          cache.Row<float>(row / rows)[index] = value;
        } else {
          cache.Row<uint16_t>(row / rows)[index] = FloatToBf16(value);
        }
      }
    }
  }
}

}  // namespace pagemill::ops::latent_write
