// `latent_write` a row at a time.
#include <cstdint>

#include "cc/ops/latent_write/latent_cache.h"
#include "cc/ops/latent_write/latent_write.h"
#include "cc/ops/row_split.h"
#include "cc/ops/vec/vec_portable.h"

namespace pagemill::ops::latent_write {
namespace {

template <typename Element>
void StoreRow(const float* from, int64_t count, Element* to) {
  int64_t i = 0;
  for (; i + Vec::kLanes <= count; i += Vec::kLanes) Vec::Store(to + i, Vec::Load(from + i));
  const int rest = static_cast<int>(count - i);
  if (rest > 0) Vec::StoreN(to + i, Vec::LoadN(from + i, rest), rest);
}

template <typename Element>
void StoreToken(const OpCall& call, int64_t token, int64_t row) {
  const TensorView& latent = call.inputs[0];
  const TensorView& rope = call.inputs[1];
  const TensorView& cache = call.inputs[2];
  const int64_t rows = cache.shape[1], size = latent.RowElements();
  Element* const to = cache.Row<Element>(row / rows) + row % rows * cache.shape[2];
  StoreRow(latent.Row<const float>(token), size, to);
  if (rope.rank > 0) StoreRow(rope.Row<const float>(token), rope.RowElements(), to + size);
}

}  // namespace

void RunPortable(const OpCall& call, KernelContext& context) {
  const TensorView& cache = call.inputs[2];
  const int64_t every = TokensOfRow(call, /*input=*/2);
  const auto store = cache.dtype == DType::kF32 ? StoreToken<float> : StoreToken<uint16_t>;
  context.pool->ParallelFor(call.batch->num_tokens, RowsPerChunk(cache.shape[2]),
                            [&](int64_t begin, int64_t end, int) {
                              for (int64_t t = begin; t < end; ++t) {
                                const int64_t slot = call.batch->slot_mapping[t];
                                if (slot >= 0 && (slot + 1) % every == 0) {
                                  store(call, t, slot / every);
                                }
                              }
                            });
}

}  // namespace pagemill::ops::latent_write
