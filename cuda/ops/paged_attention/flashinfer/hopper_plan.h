// File: cuda/ops/paged_attention/flashinfer/hopper_plan.h
// The prompts of a step for FlashInfer's attention of compute capability 9.0: tiles of a request's
// tokens, each for one query head and over all keys that it sees, shared out to a grid of fixed
// size. The other requests of the step have the work of plan.h.
//
//   std::vector<std::byte> plan(HopperPlanView::Bytes(shape));
//   if (MayHavePrompts(shape)) PlanHopper(shape, query_start, seq_lens, plan.data());
//
// Sizes of arrays and of the grid follow from the shape alone, and keys are not divided: a row's
// result depends on its request alone. Which kernel a request has depends on the step's shape, too.
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_HOPPER_PLAN_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_HOPPER_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "cuda/ops/paged_attention/flashinfer/plan.h"

namespace pagemill::gpu {

// Requests of so many tokens, and more, are prompts. Of fewer tokens the tiles here are mostly
// empty, while those of plan.h have the query heads that read a KV head as rows, too.
inline constexpr int32_t kPromptTokens = 128;

// Blocks of the grid, one at a time on a multiprocessor. More multiprocessors stay idle, on fewer
// some blocks follow others.
inline constexpr int32_t kHopperBlocks = kPlannedMultiprocessors;

// Rows of a tile, and keys that it reads at once, FlashInfer's choice.
constexpr int32_t HopperTileRows(int64_t head_dim) { return head_dim == 64 ? 192 : 128; }
constexpr int32_t HopperTileKeys(int64_t head_dim) { return head_dim == 256 ? 32 : 96; }

// If false, requests of a step of this shape have the work of plan.h, all of them. If true, the only
// request of a step is a prompt: tokens that pad a step are of a request of their own.
bool MayHavePrompts(const FlashInferShape& shape);

// The arrays of a plan. Of device memory on a device.
struct HopperPlanView {
  int32_t* first_tile;  // [kHopperBlocks + 1] the tiles of each block
  // [tiles]
  int32_t* head;          // of queries
  int32_t* tile;          // among those of the request
  int32_t* query_start;   // of the request: its first token in the step
  int32_t* query_tokens;  // tokens in the step
  int32_t* first_page;    // its row of the block table
  int32_t* seq_len;

  static HopperPlanView Of(const FlashInferShape& shape, std::byte* plan);
  // Of any batch with at most the shape's tokens and requests; a multiple of 4.
  static int64_t Bytes(const FlashInferShape& shape);
};

// `query_start` [requests + 1] and `seq_lens` [requests] are the host's, as is `plan`, which has
// Bytes() and is aligned to 4 bytes.
void PlanHopper(const FlashInferShape& shape, const int32_t* query_start, const int32_t* seq_lens,
                std::byte* plan);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_HOPPER_PLAN_H_
