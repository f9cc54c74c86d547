// File: cuda/ops/paged_attention/flashinfer/hopper_instance_inl.h
// The definition of hopper_instance.h.
//
// Launches the kernel of FlashInfer's BatchPrefillWithPagedKVCacheDispatched() with the same tiles.
// That function has a block for each multiprocessor of the GPU, while plans are for kHopperBlocks,
// and it returns none of the errors of its steps.
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_HOPPER_INSTANCE_INL_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_HOPPER_INSTANCE_INL_H_

// Leaves out cutlass_utils.cuh: the kernel needs none of it, and CUTLASS's headers for tests, which
// it includes, need cuRAND's.
#define FLASHINFER_CUTLASS_UTILS_CUH_

#include <cute/tensor.hpp>
#include <cutlass/fast_math.h>
#include <cutlass/numeric_types.h>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>

#include "cuda/ops/paged_attention/flashinfer/hopper_instance.h"

namespace pagemill::gpu {

// What the variant reads of the parameters.
struct HopperScores {
  float sm_scale;
};

template <int kHeadDim>
cudaError_t RunHopperAttention(const HopperCall& call, cudaStream_t stream) {
  using Element = cutlass::bfloat16_t;
  using Traits = flashinfer::AttentionKernelTraits<
      /*USE_TMA_LOAD_KV=*/false, kHeadDim, kHeadDim, HopperTileRows(kHeadDim),
      HopperTileKeys(kHeadDim), /*NUM_STAGES=*/2, Element, Element, Element, int32_t,
      flashinfer::StandardAttention>;
  using Mainloop = flashinfer::SparseCollectiveMainloop<HopperScores, Traits, /*CAUSAL=*/true>;
  using Epilogue = flashinfer::CollectiveEpilogue<Traits>;
  using Scheduler = flashinfer::BatchPrefillPersistentTileScheduler<int32_t>;
  const FlashInferShape& shape = call.shape;
  const HopperPlanView& plan = call.plan;
  const int64_t head_elements = int64_t{shape.block_size} * kHeadDim;
  const auto* const keys = static_cast<const Element*>(call.cache);
  // The layout of one page; the number of its tokens is not read.
  const auto page = flashinfer::get_gmem_layout(0, shape.kv_heads, kHeadDim, kHeadDim,
                                                head_elements);
  const auto mainloop = Mainloop::to_underlying_arguments(
      {.Q_ptr = static_cast<const Element*>(call.q),
       .layout_Q = flashinfer::get_gmem_layout(shape.tokens, shape.q_heads, kHeadDim,
                                               call.q_stride, kHeadDim),
       .K_ptr = keys,
       .layout_K = page,
       .V_ptr = keys + shape.kv_heads * head_elements,
       .layout_V = page,
       .kv_indices = call.block_table,
       .window_left = -1,
       .k_page_stride = call.page_stride,
       .v_page_stride = call.page_stride,
       .page_size = static_cast<uint32_t>(shape.block_size),
       .additional_params = {.sm_scale = call.scale}});
  const auto epilogue = Epilogue::to_underlying_arguments(
      {.O_ptr = static_cast<Element*>(call.y),
       .layout_O = flashinfer::get_gmem_layout(shape.tokens, shape.q_heads, kHeadDim,
                                               int64_t{shape.q_heads} * kHeadDim, kHeadDim),
       .lse_ptr = nullptr,
       .layout_LSE = flashinfer::get_lse_gmem_layout(shape.tokens, shape.q_heads)});
  const auto scheduler = Scheduler::to_underlying_arguments(
      {.work_indptr = plan.first_tile,
       .head_indices = plan.head,
       .qo_tile_indices = plan.tile,
       .qo_indptr = plan.query_start,
       .kv_indptr = plan.first_page,
       .qo_lens = plan.query_tokens,
       .kv_lens = plan.seq_len,
       .batch_indices = plan.tile,  // this variant does not use them
       .group_size_fastdiv = cutlass::FastDivmod(shape.q_heads / shape.kv_heads),
       .num_qo_heads = shape.q_heads});
  const auto kernel = flashinfer::PrefillWithKVCacheKernel<
      Mainloop, Epilogue, Traits, /*LEFT_SLIDING_WINDOW=*/false, /*CAUSAL=*/true, Scheduler>;
  constexpr int kSharedBytes = sizeof(typename Traits::SharedStorage);
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  kernel<<<kHopperBlocks, Traits::NUM_THREADS, kSharedBytes, stream>>>(mainloop, epilogue,
                                                                       scheduler);
  return cudaGetLastError();
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_HOPPER_INSTANCE_INL_H_
