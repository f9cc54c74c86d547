#include "cuda/ops/paged_attention/flashinfer/plan.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "cc/base/status.h"

// The planner asks the runtime for the current GPU, and copies the plan to it. Here it plans for
// one kind of GPU, in memory of the host, also where there is no GPU.
static cudaError_t PlannedGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

static cudaError_t PlannedGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = pagemill::gpu::kPlannedMultiprocessors;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; return cudaSuccess;
    // The least of all GPUs, in which every tile fits.
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 99 << 10; return cudaSuccess;
    default: return cudaErrorInvalidValue;
  }
}

static cudaError_t PlannedCopy(void* to, const void* from, size_t, cudaMemcpyKind, cudaStream_t) {
  return to == from ? cudaSuccess : cudaErrorInvalidValue;
}

// A namespace of its own: the inline functions of the same headers in instances ask the GPU.
#define flashinfer flashinfer_planner
#define cudaGetDevice PlannedGetDevice
#define cudaDeviceGetAttribute PlannedGetAttribute
#define cudaMemcpyAsync PlannedCopy
#include <flashinfer/attention/scheduler.cuh>
#undef flashinfer
#undef cudaGetDevice
#undef cudaDeviceGetAttribute
#undef cudaMemcpyAsync

namespace pagemill::gpu {
namespace {

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Tokens of requests that have work, at most. If not all tokens can be theirs, a request has none.
int32_t MaxTokens(const FlashInferShape& s) {
  const int64_t all = s.tokens, most = s.most_tokens;
  return static_cast<int32_t>(all <= most * s.requests ? all : most * (s.requests - 1));
}

int64_t MaxTiles(const FlashInferShape& s, int64_t tile_rows) {
  return CeilDiv(int64_t{MaxTokens(s)} * (s.q_heads / s.kv_heads), tile_rows) + s.requests - 1;
}

int64_t SplitBlocks(const FlashInferShape& s) { return kPlannedBlocks / s.kv_heads; }

// The requests as the planner gets them: those that have no work have neither tokens nor pages.
struct PlannedRequests {
  std::vector<int32_t> query_start = {0}, first_page = {0};  // [requests + 1]

  PlannedRequests(const FlashInferShape& shape, const int32_t* starts, const int32_t* seq_lens) {
    for (int32_t r = 0; r < shape.requests; ++r) {
      const int32_t tokens = starts[r + 1] - starts[r];
      const bool has_work = tokens <= shape.most_tokens;
      const int64_t pages = has_work ? CeilDiv(seq_lens[r], shape.block_size) : 0;
      query_start.push_back(query_start.back() + (has_work ? tokens : 0));
      first_page.push_back(first_page.back() + static_cast<int32_t>(pages));
    }
  }
};

// The first state of each token, [tokens + 1], from that of each token with work: others have none.
void SpreadStates(const FlashInferShape& shape, const int32_t* query_start,
                  const std::vector<int32_t>& planned_start, const int32_t* planned_states,
                  int32_t* first_state) {
  for (int32_t r = 0; r < shape.requests; ++r) {
    const int32_t* const first = planned_states + planned_start[r];
    const int32_t tokens = query_start[r + 1] - query_start[r];
    if (planned_start[r + 1] == planned_start[r]) {
      std::fill_n(first_state + query_start[r], tokens, *first);
    } else {
      std::copy_n(first, tokens, first_state + query_start[r]);
    }
  }
  first_state[shape.tokens] = planned_states[planned_start.back()];
}

// Bytes that the planner takes for its arrays, with what it aligns them by.
size_t ScratchBytes(const FlashInferShape& shape, const FlashInferGrid& grid) {
  constexpr size_t kArrays = 9, kAlignment = 16;
  return static_cast<size_t>(3 * grid.blocks + shape.requests + shape.tokens + 4) *
             sizeof(int32_t) +
         static_cast<size_t>(grid.blocks) + kArrays * kAlignment;
}

}  // namespace

FlashInferGrid FlashInferGrid::Of(const FlashInferShape& shape) {
  // Rows of the longest request if all others have one token, as the planner computes it.
  const uint64_t longest = uint64_t{static_cast<uint32_t>(MaxTokens(shape) - shape.requests + 1)} *
                           static_cast<uint32_t>(shape.q_heads / shape.kv_heads);
  const int32_t tile_rows = longest > 64 ? MostTileRows(shape.head_dim) : longest > 16 ? 64 : 16;
  const int64_t tiles = MaxTiles(shape, tile_rows), split = SplitBlocks(shape);
  return {.tile_rows = tile_rows,
          .blocks = static_cast<int32_t>(std::max(tiles, split)),
          .splits = tiles < split};
}

int64_t FlashInferGrid::MaxStates(const FlashInferShape& shape) const {
  return splits ? int64_t{blocks} * tile_rows / (shape.q_heads / shape.kv_heads) : 0;
}

int64_t FlashInferPlanView::Bytes(const FlashInferShape& shape) {
  const int64_t blocks = std::max(MaxTiles(shape, 16) + 1, SplitBlocks(shape));
  return blocks * static_cast<int64_t>(3 * sizeof(int32_t) + sizeof(bool)) +
         (3 * int64_t{shape.requests} + shape.tokens + 5) * static_cast<int64_t>(sizeof(int32_t));
}

FlashInferPlanView FlashInferPlanView::Of(const FlashInferShape& shape, std::byte* plan) {
  const int64_t blocks = FlashInferGrid::Of(shape).blocks;
  int32_t* next = reinterpret_cast<int32_t*>(plan);
  const auto take = [&](int64_t size) { return std::exchange(next, next + size); };
  FlashInferPlanView view = {};
  view.chunk_tokens = take(1);
  view.num_tokens = reinterpret_cast<uint32_t*>(take(1));
  view.request = take(blocks);
  view.tile = take(blocks);
  view.chunk = take(blocks);
  view.first_output = take(shape.requests + 1);
  view.first_state = take(shape.tokens + 1);
  view.first_page = take(shape.requests + 1);
  view.last_page_tokens = take(shape.requests);
  view.has_work = reinterpret_cast<bool*>(next);
  return view;
}

void PlanFlashInfer(const FlashInferShape& shape, const int32_t* query_start,
                    const int32_t* seq_lens, std::byte* plan) {
  if (shape.tokens == 0) return;
  const FlashInferGrid grid = FlashInferGrid::Of(shape);
  PlannedRequests planned(shape, query_start, seq_lens);
  std::vector<std::byte> scratch(ScratchBytes(shape, grid));
  flashinfer_planner::PrefillPlanInfo info;
  // The planner only computes offsets into the memory of states.
  const cudaError_t error = flashinfer_planner::PrefillPlan<int32_t>(
      scratch.data(), SIZE_MAX / 4, scratch.data(), scratch.data(), scratch.size(), info,
      planned.query_start.data(), planned.first_page.data(),
      static_cast<uint32_t>(MaxTokens(shape)), static_cast<uint32_t>(shape.requests),
      static_cast<uint32_t>(shape.q_heads), static_cast<uint32_t>(shape.kv_heads),
      static_cast<uint32_t>(shape.head_dim), static_cast<uint32_t>(shape.head_dim),
      static_cast<uint32_t>(shape.block_size),
      /*enable_cuda_graph=*/true, /*sizeof_dtype_o=*/2, /*window_left=*/-1,
      /*fixed_split_size=*/-1, /*disable_split_kv=*/!grid.splits, /*num_colocated_ctas=*/0,
      /*uniform_q_len=*/0, /*stream=*/nullptr);
  PAGEMILL_CHECK(error == cudaSuccess);
  PAGEMILL_CHECK(info.cta_tile_q == grid.tile_rows && info.padded_batch_size == grid.blocks &&
                 info.split_kv == grid.splits);
  const FlashInferPlanView view = FlashInferPlanView::Of(shape, plan);
  const auto copy = [&](void* to, int64_t offset, int64_t bytes) {
    std::memcpy(to, scratch.data() + offset, static_cast<size_t>(bytes));
  };
  const int64_t block_bytes = grid.blocks * static_cast<int64_t>(sizeof(int32_t));
  copy(view.request, info.request_indices_offset, block_bytes);
  copy(view.tile, info.qo_tile_indices_offset, block_bytes);
  copy(view.chunk, info.kv_tile_indices_offset, block_bytes);
  copy(view.has_work, info.block_valid_mask_offset, grid.blocks);
  *view.num_tokens = static_cast<uint32_t>(shape.tokens);
  if (grid.splits) {
    copy(view.chunk_tokens, info.kv_chunk_size_ptr_offset, sizeof(int32_t));
    copy(view.first_output, info.o_indptr_offset, (shape.requests + 1) * sizeof(int32_t));
    SpreadStates(shape, query_start, planned.query_start,
                 reinterpret_cast<const int32_t*>(scratch.data() + info.merge_indptr_offset),
                 view.first_state);
  } else {
    *view.chunk_tokens = INT32_MAX;
    std::copy_n(query_start, shape.requests + 1, view.first_output);
  }
  for (int32_t r = 0; r <= shape.requests; ++r) view.first_page[r] = r * shape.table_stride;
  for (int32_t r = 0; r < shape.requests; ++r) {
    view.last_page_tokens[r] = seq_lens[r] - (shape.table_stride - 1) * shape.block_size;
  }
}

}  // namespace pagemill::gpu
