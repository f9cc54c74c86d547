// File: cuda/ops/paged_attention/flashinfer/plan.h
// The work of a step's attention, divided by FlashInfer's planner: tiles of rows (tokens times the
// query heads that read one KV head) of a request, times chunks of its keys. A block of the kernel
// takes one of them for each KV head.
//
//   const FlashInferShape shape = {.tokens = 7, .requests = 2, .q_heads = 8, .kv_heads = 2, ...};
//   std::vector<std::byte> plan(FlashInferPlanView::Bytes(shape));
//   PlanFlashInfer(shape, query_start, seq_lens, plan.data());
//
// Sizes of arrays and of the grid follow from the shape alone, so that a recorded launch stays
// valid while the contents of a batch change. Keys are divided as for a GPU of
// kPlannedMultiprocessors, so plans are the same on all GPUs. Results depend on the whole batch:
// how many chunks a request has is decided by what else is computed.
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_PLAN_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_PLAN_H_

#include <cstddef>
#include <cstdint>

namespace pagemill::gpu {

inline constexpr int32_t kPlannedMultiprocessors = 132;  // of H100 and H200

// Blocks that a planned GPU runs at a time, over all KV heads: two for each multiprocessor.
inline constexpr int32_t kPlannedBlocks = 2 * kPlannedMultiprocessors;

struct FlashInferShape {
  int32_t tokens = 0, requests = 0;
  int32_t q_heads = 1, kv_heads = 1;  // at most kPlannedBlocks KV heads
  int32_t head_dim = 0;
  int32_t block_size = 0;    // tokens of a page
  int32_t table_stride = 0;  // pages from one request's row of the block table to the next
  // Requests of more tokens in the step have no work: another kernel computes their rows, which may
  // be written before that.
  int32_t most_tokens = INT32_MAX;
};

// Rows of the largest tiles, FlashInfer's choice: sums of wider heads need the registers.
constexpr int32_t MostTileRows(int64_t head_dim) { return head_dim < 256 ? 128 : 64; }

struct FlashInferGrid {
  int32_t tile_rows;  // 16, 64, or MostTileRows()
  int32_t blocks;     // for each KV head, some of which may have no work
  bool splits;        // requests may have several chunks, whose states are merged

  static FlashInferGrid Of(const FlashInferShape& shape);
  // States of chunks, one for each token and chunk, over all requests: at most this many.
  int64_t MaxStates(const FlashInferShape& shape) const;
};

// The arrays of a plan. Of device memory on a device.
struct FlashInferPlanView {
  int32_t* chunk_tokens;          // [1] keys of a chunk
  uint32_t* num_tokens;           // [1]
  int32_t *request, *tile, *chunk;  // [blocks] what a block computes
  bool* has_work;                 // [blocks]
  int32_t* first_output;          // [requests + 1] its states if grid.splits, else its rows
  int32_t* first_state;           // [tokens + 1]
  int32_t* first_page;            // [requests + 1] the request's row of the block table
  // [requests] tokens of the last page if requests had all pages of their rows in the table:
  // FlashInfer computes lengths as (pages - 1) block_size + this, which may be negative.
  int32_t* last_page_tokens;

  static FlashInferPlanView Of(const FlashInferShape& shape, std::byte* plan);
  // Of any batch with at most the shape's tokens and requests.
  static int64_t Bytes(const FlashInferShape& shape);
};

// `query_start` [requests + 1] and `seq_lens` [requests] are the host's, as is `plan`, which has
// Bytes() and is aligned to 16 bytes.
void PlanFlashInfer(const FlashInferShape& shape, const int32_t* query_start,
                    const int32_t* seq_lens, std::byte* plan);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_PLAN_H_
