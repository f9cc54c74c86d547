// The reference of `latent_write`: one element at a time.
#include <cstdint>

#include "cc/ops/latent_write/latent_write.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops::latent_write {

void RunReference(const OpCall& call, KernelContext&) {
  const TensorView& cache = call.inputs[2];
  const int64_t block_size = cache.shape[1];
  for (int64_t t = 0; t < call.batch->num_tokens; ++t) {
    const int64_t slot = call.batch->slot_mapping[t];
    if (slot < 0) continue;
    int64_t index = slot % block_size * cache.shape[2];
    for (const TensorView& part : call.inputs.first(2)) {
      for (int64_t i = 0; i < part.RowElements(); ++i, ++index) {
        const float value = part.Row<const float>(t)[i];
        if (cache.dtype == DType::kF32) {
          cache.Row<float>(slot / block_size)[index] = value;
        } else {
          cache.Row<uint16_t>(slot / block_size)[index] = FloatToBf16(value);
        }
      }
    }
  }
}

}  // namespace pagemill::ops::latent_write
