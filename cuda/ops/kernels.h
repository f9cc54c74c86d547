// File: cuda/ops/kernels.h
// The kernels of every op of this tree, each defined in <op>/<op>.cc.
#ifndef PAGEMILL_CUDA_OPS_KERNELS_H_
#define PAGEMILL_CUDA_OPS_KERNELS_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> ActivationKernels();
std::span<const ops::Kernel> AddKernels();
std::span<const ops::Kernel> AddRmsNormKernels();
std::span<const ops::Kernel> AdjustLogitsKernels();
std::span<const ops::Kernel> AllGatherKernels();
std::span<const ops::Kernel> AllReduceKernels();
std::span<const ops::Kernel> ApplyAdapterKernels();
std::span<const ops::Kernel> ArgmaxKernels();
std::span<const ops::Kernel> AttentionKernels();
std::span<const ops::Kernel> CausalConvKernels();
std::span<const ops::Kernel> CompressTokensKernels();
std::span<const ops::Kernel> ConcatKernels();
std::span<const ops::Kernel> CountTokensKernels();
std::span<const ops::Kernel> DepthwiseConvKernels();
std::span<const ops::Kernel> DrawTokensKernels();
std::span<const ops::Kernel> EmbeddingKernels();
std::span<const ops::Kernel> GatedActivationKernels();
std::span<const ops::Kernel> GatedDeltaKernels();
std::span<const ops::Kernel> GatedRecurrenceKernels();
std::span<const ops::Kernel> GroupedLinearKernels();
std::span<const ops::Kernel> HeadLinearKernels();
std::span<const ops::Kernel> KvWriteKernels();
std::span<const ops::Kernel> LatentAttentionKernels();
std::span<const ops::Kernel> LatentWriteKernels();
std::span<const ops::Kernel> LayerNormKernels();
std::span<const ops::Kernel> LinearKernels();
std::span<const ops::Kernel> MaskTokensKernels();
std::span<const ops::Kernel> MatrixWkvKernels();
std::span<const ops::Kernel> MergeAttentionKernels();
std::span<const ops::Kernel> MixStreamsKernels();
std::span<const ops::Kernel> MoeCombineKernels();
std::span<const ops::Kernel> MoeRouteKernels();
std::span<const ops::Kernel> PagedAttentionKernels();
std::span<const ops::Kernel> PoolKernels();
std::span<const ops::Kernel> RmsNormKernels();
std::span<const ops::Kernel> RotaryKernels();
std::span<const ops::Kernel> RotaryKvWriteKernels();
std::span<const ops::Kernel> ScaleKernels();
std::span<const ops::Kernel> ScatterRowsKernels();
std::span<const ops::Kernel> ScoreTokensKernels();
std::span<const ops::Kernel> SelectRowsKernels();
std::span<const ops::Kernel> SelectTokensKernels();
std::span<const ops::Kernel> SelectiveScanKernels();
std::span<const ops::Kernel> SparseReluKernels();
std::span<const ops::Kernel> SplitKernels();
std::span<const ops::Kernel> StateSpaceScanKernels();
std::span<const ops::Kernel> StreamWeightsKernels();
std::span<const ops::Kernel> TakeTokensKernels();
std::span<const ops::Kernel> UnfoldKernels();
std::span<const ops::Kernel> WkvKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_KERNELS_H_
