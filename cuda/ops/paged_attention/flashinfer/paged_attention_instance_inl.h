// File: cuda/ops/paged_attention/flashinfer/paged_attention_instance_inl.h
// The definition of paged_attention_instance.h. FlashInfer's decode is this kernel with tiles of 16
// rows: on tensor cores, for every number of query heads.
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_PAGED_ATTENTION_INSTANCE_INL_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_PAGED_ATTENTION_INSTANCE_INL_H_

#include <cuda_bf16.h>

#include <exception>
#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/variants.cuh>
#include <flashinfer/page.cuh>

#include "cuda/ops/paged_attention/flashinfer/paged_attention_instance.h"

namespace pagemill::gpu {

template <int kHeadDim, int kTileRows>
cudaError_t RunPagedAttention(const PagedAttentionCall& call, cudaStream_t stream) {
  using Params =
      flashinfer::BatchPrefillPagedParams<nv_bfloat16, nv_bfloat16, nv_bfloat16, int32_t>;
  // Causal, without windows, soft caps and ALiBi.
  using Variant = flashinfer::DefaultAttention</*use_custom_mask=*/false,
                                               /*use_sliding_window=*/false,
                                               /*use_logits_soft_cap=*/false,
                                               /*use_alibi=*/false>;
  const FlashInferShape& shape = call.shape;
  const FlashInferGrid grid = FlashInferGrid::Of(shape);
  auto* const keys = static_cast<nv_bfloat16*>(const_cast<void*>(call.cache));
  const int64_t head_elements = int64_t{shape.block_size} * kHeadDim;
  const int64_t strides[] = {call.page_stride, head_elements, kHeadDim};
  Params params;
  params.q = static_cast<nv_bfloat16*>(const_cast<void*>(call.q));
  params.paged_kv = flashinfer::paged_kv_t<nv_bfloat16, int32_t>(
      static_cast<uint32_t>(shape.kv_heads), static_cast<uint32_t>(shape.block_size), kHeadDim,
      static_cast<uint32_t>(shape.requests), flashinfer::QKVLayout::kHND, keys,
      keys + shape.kv_heads * head_elements, strides, const_cast<int32_t*>(call.block_table),
      call.plan.first_page, call.plan.last_page_tokens);
  params.q_indptr = const_cast<int32_t*>(call.query_start);
  params.o = static_cast<nv_bfloat16*>(call.y);
  params.group_size =
      flashinfer::uint_fastdiv(static_cast<uint32_t>(shape.q_heads / shape.kv_heads));
  params.num_qo_heads = static_cast<uint32_t>(shape.q_heads);
  params.q_stride_n = static_cast<int32_t>(call.q_stride);
  params.q_stride_h = kHeadDim;
  params.window_left = -1;
  params.sm_scale = call.scale;
  params.request_indices = call.plan.request;
  params.qo_tile_indices = call.plan.tile;
  params.kv_tile_indices = call.plan.chunk;
  params.merge_indptr = call.plan.first_state;
  params.o_indptr = call.plan.first_output;
  params.block_valid_mask = call.plan.has_work;
  params.kv_chunk_size_ptr = call.plan.chunk_tokens;
  params.max_total_num_rows = static_cast<uint32_t>(shape.tokens);
  params.total_num_rows = call.plan.num_tokens;
  params.padded_batch_size = static_cast<uint32_t>(grid.blocks);
  try {
    return flashinfer::BatchPrefillWithPagedKVCacheDispatched<
        /*SAME_KV_STRIDES=*/true, kTileRows, kHeadDim, kHeadDim, flashinfer::PosEncodingMode::kNone,
        /*USE_FP16_QK_REDUCTION=*/false, flashinfer::MaskMode::kCausal, Variant, Params>(
        params, grid.splits ? static_cast<nv_bfloat16*>(call.states) : nullptr,
        grid.splits ? call.scales : nullptr, /*enable_pdl=*/call.early, stream);
  } catch (const std::exception&) {  // the GPU's blocks have too little shared memory
    return cudaErrorInvalidConfiguration;
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_PAGED_ATTENTION_INSTANCE_INL_H_
