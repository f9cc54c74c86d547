// The reference of `select_tokens`: one query after the other, in double.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "cc/ops/latent_write/latent_cache.h"
#include "cc/ops/select_tokens/select_tokens.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops::select_tokens {
namespace {

struct Scored {
  double score;
  int32_t position;
};

double Element(const TensorView& cache, int64_t page, int64_t index) {
  if (cache.dtype == DType::kF32) return cache.Row<const float>(page)[index];
  return Bf16ToFloat(cache.Row<const uint16_t>(page)[index]);
}

double Score(const OpCall& call, int64_t request, int64_t token, int32_t position) {
  const TensorView& cache = call.inputs[3];
  const int64_t heads = call.inputs[0].shape[1];
  const int64_t size = call.inputs[0].shape[2], width = cache.shape[2], rope_size = width - size;
  const BatchView& batch = *call.batch;
  const int64_t rows = cache.shape[1];
  const int64_t page = batch.block_table[request * batch.block_table_stride + position / rows];
  const int64_t first = position % rows * width;
  const float* const q = call.inputs[0].Row<const float>(token);
  const float* const rope = rope_size > 0 ? call.inputs[1].Row<const float>(token) : nullptr;
  double score = 0;
  for (int64_t h = 0; h < heads; ++h) {
    double sum = 0;
    for (int64_t i = 0; i < size; ++i) sum += q[h * size + i] * Element(cache, page, first + i);
    for (int64_t i = 0; i < rope_size; ++i) {
      sum += rope[h * rope_size + i] * Element(cache, page, first + size + i);
    }
    score += call.inputs[2].Row<const float>(token)[h] * (sum < 0 ? 0 : sum);
  }
  return std::isnan(score) ? -std::numeric_limits<double>::infinity() : score;
}

// Inserts into `best`, the best `count` tokens so far in order; returns how many there are then.
int64_t Insert(Scored token, int64_t choices, int64_t count, Scored* best) {
  int64_t at = count;
  while (at > 0 && token.score > best[at - 1].score) --at;
  if (at == choices) return count;
  const int64_t kept = std::min(count, choices - 1);
  std::copy_backward(best + at, best + kept, best + kept + 1);
  best[at] = token;
  return kept + 1;
}

}  // namespace

void RunReference(const OpCall& call, KernelContext& context) {
  const int64_t choices = call.outputs[0].shape[1];
  const BatchView& batch = *call.batch;
  auto* const best = reinterpret_cast<Scored*>(context.workspace.data());
  for (int64_t request = 0; request < batch.num_requests; ++request) {
    for (int64_t token = batch.query_start[request]; token < batch.query_start[request + 1];
         ++token) {
      const int64_t position_of_query =
          batch.seq_lens[request] - batch.query_start[request + 1] + token;
      const int32_t visible = VisibleRows(static_cast<int32_t>(position_of_query),
                                          TokensOfRow(call, /*input=*/3));
      int64_t count = 0;
      for (int32_t position = 0; position < visible; ++position) {
        const Scored scored = {Score(call, request, token, position), position};
        count = Insert(scored, choices, count, best);
      }
      int32_t* const chosen = call.outputs[0].Row<int32_t>(token);
      for (int64_t i = 0; i < count; ++i) chosen[i] = best[i].position;
      std::sort(chosen, chosen + count);
      std::fill(chosen + count, chosen + choices, -1);
    }
  }
}

int64_t ReferenceWorkspaceBytes(const OpCall& call, int32_t) {
  return call.outputs[0].shape[1] * static_cast<int64_t>(sizeof(Scored));
}

}  // namespace pagemill::ops::select_tokens
