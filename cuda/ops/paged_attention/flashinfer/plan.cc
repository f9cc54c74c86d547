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
    // The least of all GPUs, in which every tile for heads of up to 128 fits.
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

int64_t MaxTiles(const FlashInferShape& s, int64_t tile_rows) {
  return CeilDiv(int64_t{s.tokens} * (s.q_heads / s.kv_heads), tile_rows) + s.requests - 1;
}

int64_t SplitBlocks(const FlashInferShape& s) { return kPlannedBlocks / s.kv_heads; }

int32_t TokensOf(const int32_t* query_start, int32_t request) {
  return query_start[request + 1] - query_start[request];
}

// Pages of the requests before each, and of all. Requests of more than `most_tokens` have none, so
// that the planner divides the others' keys, as far as the blocks go that their rows leave.
std::vector<int32_t> PagesBefore(const FlashInferShape& shape, const int32_t* query_start,
                                 const int32_t* seq_lens, int32_t most_tokens) {
  std::vector<int32_t> pages = {0};
  for (int32_t r = 0; r < shape.requests; ++r) {
    const int32_t keys = TokensOf(query_start, r) > most_tokens ? 0 : seq_lens[r];
    pages.push_back(pages.back() + static_cast<int32_t>(CeilDiv(keys, shape.block_size)));
  }
  return pages;
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
  // Rows of the longest request if all others have one token.
  const uint64_t longest = uint64_t{static_cast<uint32_t>(shape.tokens - shape.requests + 1)} *
                           static_cast<uint32_t>(shape.q_heads / shape.kv_heads);
  const int32_t tile_rows = longest > 64 ? 128 : longest > 16 ? 64 : 16;
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
                    const int32_t* seq_lens, std::byte* plan, int32_t most_tokens) {
  if (shape.tokens == 0) return;
  const FlashInferGrid grid = FlashInferGrid::Of(shape);
  std::vector<int32_t> pages = PagesBefore(shape, query_start, seq_lens, most_tokens);
  std::vector<std::byte> scratch(ScratchBytes(shape, grid));
  flashinfer_planner::PrefillPlanInfo info;
  // The planner only computes offsets into the memory of states.
  const cudaError_t error = flashinfer_planner::PrefillPlan<int32_t>(
      scratch.data(), SIZE_MAX / 4, scratch.data(), scratch.data(), scratch.size(), info,
      const_cast<int32_t*>(query_start), pages.data(), static_cast<uint32_t>(shape.tokens),
      static_cast<uint32_t>(shape.requests), static_cast<uint32_t>(shape.q_heads),
      static_cast<uint32_t>(shape.kv_heads), static_cast<uint32_t>(shape.head_dim),
      static_cast<uint32_t>(shape.head_dim), static_cast<uint32_t>(shape.block_size),
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
  copy(view.first_output, info.o_indptr_offset, (shape.requests + 1) * sizeof(int32_t));
  copy(view.has_work, info.block_valid_mask_offset, grid.blocks);
  for (int32_t i = 0; i < grid.blocks; ++i) {
    if (view.has_work[i]) {
      view.has_work[i] = TokensOf(query_start, view.request[i]) <= most_tokens;
    }
  }
  *view.num_tokens = static_cast<uint32_t>(shape.tokens);
  if (grid.splits) {
    copy(view.chunk_tokens, info.kv_chunk_size_ptr_offset, sizeof(int32_t));
    copy(view.first_state, info.merge_indptr_offset, (shape.tokens + 1) * sizeof(int32_t));
  } else {
    *view.chunk_tokens = INT32_MAX;
  }
  for (int32_t r = 0; r <= shape.requests; ++r) view.first_page[r] = r * shape.table_stride;
  for (int32_t r = 0; r < shape.requests; ++r) {
    view.last_page_tokens[r] = seq_lens[r] - (shape.table_stride - 1) * shape.block_size;
  }
}

}  // namespace pagemill::gpu
