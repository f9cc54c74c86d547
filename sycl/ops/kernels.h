// File: sycl/ops/kernels.h
// The kernels of this tree, defined in the op's folder: one for each op, several of `linear`.
// sycl/ops_table.cc lists them.
#ifndef PAGEMILL_SYCL_OPS_KERNELS_H_
#define PAGEMILL_SYCL_OPS_KERNELS_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::sycl {

extern const ops::Kernel kActivation;
extern const ops::Kernel kAdd;
extern const ops::Kernel kAddRmsNorm;
extern const ops::Kernel kAdjustLogits;
extern const ops::Kernel kAllGather;
extern const ops::Kernel kAllReduce;
extern const ops::Kernel kAllReduceAddRmsNorm;
extern const ops::Kernel kApplyAdapter;
extern const ops::Kernel kArgmax;
extern const ops::Kernel kAttention;
extern const ops::Kernel kCausalConv;
extern const ops::Kernel kCompressTokens;
extern const ops::Kernel kConcat;
extern const ops::Kernel kCountTokens;
extern const ops::Kernel kDepthwiseConv;
extern const ops::Kernel kDrawTokens;
extern const ops::Kernel kEmbedding;
extern const ops::Kernel kGatedActivation;
extern const ops::Kernel kGatedDelta;
extern const ops::Kernel kGatedRecurrence;
extern const ops::Kernel kGroupedLinear;
extern const ops::Kernel kHeadLinear;
extern const ops::Kernel kKvWrite;
extern const ops::Kernel kLatentAttention;
extern const ops::Kernel kLatentWrite;
extern const ops::Kernel kLayerNorm;
extern const ops::Kernel kMaskTokens;
extern const ops::Kernel kMatrixWkv;
extern const ops::Kernel kMergeAttention;
extern const ops::Kernel kMixStreams;
extern const ops::Kernel kMoeCombine;
extern const ops::Kernel kMoeRoute;
extern const ops::Kernel kPagedAttention;
extern const ops::Kernel kPool;
extern const ops::Kernel kRmsNorm;
extern const ops::Kernel kRotary;
extern const ops::Kernel kRotaryKvWrite;
extern const ops::Kernel kScale;
extern const ops::Kernel kScatterRows;
extern const ops::Kernel kScoreTokens;
extern const ops::Kernel kSelectRows;
extern const ops::Kernel kSelectTokens;
extern const ops::Kernel kSelectiveScan;
extern const ops::Kernel kSparseRelu;
extern const ops::Kernel kSplit;
extern const ops::Kernel kStateSpaceScan;
extern const ops::Kernel kStreamWeights;
extern const ops::Kernel kTakeTokens;
extern const ops::Kernel kUnfold;
extern const ops::Kernel kWkv;

std::span<const ops::Kernel> LinearKernels();

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_KERNELS_H_
