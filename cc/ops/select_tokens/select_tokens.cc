#include "cc/ops/select_tokens/select_tokens.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "cc/ops/kernel_support.h"
#include "cc/ops/latent_write/latent_cache.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/select_tokens/best_tokens.h"
#include "cc/ops/select_tokens/token_scores.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

using select_tokens::BestTokens;
using select_tokens::IndexQuery;
using select_tokens::ScoredToken;
using select_tokens::ScoreKernel;

Status CheckSelectTokens(const OpCall& call) {
  OperandCheck check("select_tokens", call, /*inputs=*/4, /*outputs=*/1);
  check.ActInput(0, "q", "T,H,R");
  if (HasInput(call, 1)) check.ActInput(1, "rope", "T,H,P");
  check.Input(2, "weights", DType::kF32, "T,H");
  check.Output(0, "chosen", DType::kI32, "T,K");
  if (!check.ok()) return check.Result();
  RequireLatentCache(call, /*input=*/3, check.Dim('R') + check.Dim('P'), &check);
  check.Require(call.inputs[3].dtype != DType::kF8E4M3,
                "a cache of index keys must be f32 or bf16: all elements of its rows have to be "
                "bf16_elements, got f8_e4m3");
  const int64_t choices = check.Dim('K');
  check.Require(check.Dim('H') >= 1 && check.Dim('H') <= kMaxIndexHeads,
                "there must be 1 to " + std::to_string(kMaxIndexHeads) + " heads, got " +
                    std::to_string(check.Dim('H')));
  check.Require(choices >= 1 && choices <= kMaxTokenChoices,
                "1 to " + std::to_string(kMaxTokenChoices) + " tokens can be chosen, got " +
                    std::to_string(choices));
  check.IntegerAttribute("choices", /*fallback=*/0, choices, choices);
  return check.Result();
}

int64_t Choices(const OpCall& call) { return call.outputs[0].shape[1]; }

// Parts that the context of each token is divided into: enough for all threads.
int64_t PartsOf(int64_t tokens, int32_t threads) {
  return tokens >= threads ? 1 : (threads + tokens - 1) / std::max<int64_t>(tokens, 1);
}

// The token `token` of the step, and how many rows of the cache it sees.
struct Query {
  IndexQuery index;
  int32_t visible;
};

Query QueryOf(const OpCall& call, int64_t token) {
  const TensorView& q = call.inputs[0];
  const TensorView& rope = call.inputs[1];
  const TensorView& cache = call.inputs[3];
  const BatchView& batch = *call.batch;
  const int32_t* const starts = batch.query_start;
  const int64_t request =
      std::upper_bound(starts, starts + batch.num_requests + 1, token) - starts - 1;
  return {.index = {.q = q.Row<const float>(token),
                    .rope = rope.rank > 0 ? rope.Row<const float>(token) : nullptr,
                    .weights = call.inputs[2].Row<const float>(token),
                    .heads = static_cast<int32_t>(q.shape[1]),
                    .size = static_cast<int32_t>(q.shape[2]),
                    .rope_size = rope.rank > 0 ? static_cast<int32_t>(rope.shape[2]) : 0,
                    .cache = cache.data,
                    .page_stride_bytes = cache.row_stride_bytes,
                    .block_size = static_cast<int32_t>(cache.shape[1]),
                    .block_table = batch.block_table + request * batch.block_table_stride},
          .visible = VisibleRows(batch.seq_lens[request] - starts[request + 1] +
                                     static_cast<int32_t>(token),
                                 TokensOfRow(call, /*input=*/3))};
}

// Offers the rows of part `part` of `parts` of what the query sees.
void OfferPart(const OpCall& call, const ScoreKernel& kernel, int64_t token, int64_t part,
               int64_t parts, BestTokens* best) {
  constexpr int32_t kChunk = 64;
  const Query query = QueryOf(call, token);
  const auto score = call.inputs[3].dtype == DType::kF32 ? kernel.f32 : kernel.bf16;
  const auto begin = static_cast<int32_t>(query.visible * part / parts);
  const auto end = static_cast<int32_t>(query.visible * (part + 1) / parts);
  float scores[kChunk];
  for (int32_t first = begin; first < end; first += kChunk) {
    const int32_t count = std::min(kChunk, end - first);
    score(query.index, first, count, scores);
    for (int32_t i = 0; i < count; ++i) best->Offer({scores[i], first + i});
  }
}

void StoreChoice(const OpCall& call, int64_t token, BestTokens* best) {
  int32_t* const chosen = call.outputs[0].Row<int32_t>(token);
  int64_t count = 0;
  for (const ScoredToken& kept : best->Finish()) chosen[count++] = kept.position;
  std::sort(chosen, chosen + count);
  std::fill(chosen + count, chosen + Choices(call), -1);
}

// Few tokens: all threads score parts of their contexts, of which each keeps the best; then the
// best of these are kept.
template <const ScoreKernel* kKernel>
void RunInParts(const OpCall& call, KernelContext& context, int64_t parts) {
  const int64_t tokens = call.outputs[0].shape[0], choices = Choices(call);
  auto* const buffers = reinterpret_cast<ScoredToken*>(context.workspace.data());
  // Behind the buffers of parts, which hold twice the choices each, that of each thread's merging.
  ScoredToken* const merging = buffers + tokens * parts * 2 * choices;
  auto* const counts = reinterpret_cast<int64_t*>(
      merging + static_cast<int64_t>(context.pool->num_threads()) * 2 * choices);
  context.pool->ParallelFor(tokens * parts, /*grain=*/1, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first; i < last; ++i) {
      BestTokens best(buffers + i * 2 * choices, choices);
      OfferPart(call, *kKernel, i / parts, i % parts, parts, &best);
      counts[i] = static_cast<int64_t>(best.Finish().size());
    }
  });
  context.pool->ParallelFor(tokens, /*grain=*/1, [&](int64_t first, int64_t last, int worker) {
    for (int64_t token = first; token < last; ++token) {
      BestTokens best(merging + worker * 2 * choices, choices);
      for (int64_t i = token * parts; i < (token + 1) * parts; ++i) {
        const ScoredToken* const kept = buffers + i * 2 * choices;
        for (int64_t j = 0; j < counts[i]; ++j) best.Offer(kept[j]);
      }
      StoreChoice(call, token, &best);
    }
  });
}

template <const ScoreKernel* kKernel>
void Run(const OpCall& call, KernelContext& context) {
  const int64_t tokens = call.outputs[0].shape[0], choices = Choices(call);
  const int64_t parts = PartsOf(tokens, context.pool->num_threads());
  if (parts > 1) return RunInParts<kKernel>(call, context, parts);
  auto* const buffers = reinterpret_cast<ScoredToken*>(context.workspace.data());
  context.pool->ParallelFor(tokens, /*grain=*/1, [&](int64_t first, int64_t last, int worker) {
    for (int64_t token = first; token < last; ++token) {
      BestTokens best(buffers + worker * 2 * choices, choices);
      OfferPart(call, *kKernel, token, 0, 1, &best);
      StoreChoice(call, token, &best);
    }
  });
}

// Enough for any number of tokens: there are at most 2 * threads parts if there are several.
int64_t WorkspaceBytes(const OpCall& call, int32_t num_threads) {
  const int64_t buffers = 3 * num_threads;
  return buffers * 2 * Choices(call) * static_cast<int64_t>(sizeof(ScoredToken)) +
         2 * num_threads * static_cast<int64_t>(sizeof(int64_t));
}

constexpr F32Kernel kReference{.act_inputs = 0b11,
                               .run = select_tokens::RunReference,
                               .workspace_bytes = select_tokens::ReferenceWorkspaceBytes};

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"select_tokens", "avx512", 30, OnAvx512, Run<&select_tokens::kScoreAvx512>, WorkspaceBytes},
    {"select_tokens", "avx2", 20, OnAvx2, Run<&select_tokens::kScoreAvx2>, WorkspaceBytes},
#endif
    {"select_tokens", "portable", 10, OnEveryCpu, Run<&select_tokens::kScorePortable>,
     WorkspaceBytes},
    WidenedReference<&kReference>("select_tokens"),
};

constexpr OpDefinition kDefinition{"select_tokens", CheckSelectTokens, kKernels};

}  // namespace

const OpDefinition& SelectTokensOp() { return kDefinition; }

}  // namespace pagemill::ops
