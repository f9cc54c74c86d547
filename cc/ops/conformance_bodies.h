// File: cc/ops/conformance_bodies.h
// The body of checks that every kernel of an op has to pass, on any back end with memory that the
// CPU can address; others wrap their kernels (testing/device_conformance.h). A back end's test
// passes its op definition and the capabilities of its machine:
//
//   TEST(Add, Conformance) { CheckAddConformance(AddOp(), device::DetectCapabilities()); }
//
// <op>/<op>_conformance.cc says what is checked, and is the library to depend on. Test code only.
#ifndef PAGEMILL_CC_OPS_CONFORMANCE_BODIES_H_
#define PAGEMILL_CC_OPS_CONFORMANCE_BODIES_H_

#include <span>

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckActivationConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckAddConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckAddRmsNormConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckAdjustLogitsConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckAllGatherConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckAllReduceConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckApplyAdapterConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckArgmaxConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckAttentionConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckCausalConvConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckCompressTokensConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckDepthwiseConvConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckDrawTokensConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckEmbeddingConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckConcatConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckCountTokensConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckGatedActivationConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckGatedDeltaConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckGatedRecurrenceConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckGroupedLinearConformance(const OpDefinition& op, const OpDefinition& linear,
                                   const device::Capabilities& caps);
void CheckHeadLinearConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckKvWriteConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckLatentAttentionConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckLatentAttentionInvariance(const OpDefinition& op, const device::Capabilities& caps);
void CheckLatentWriteConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckLayerNormConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckLinearConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckScaledConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckMaskTokensConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckMatrixWkvConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckMergeAttentionConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckMixStreamsConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckMoeCombineConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckMoeRouteConformance(const OpDefinition& op, const device::Capabilities& caps);
// Of `linear`, with packed integers.
void CheckPackedConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckPagedAttentionConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckPagedAttentionInvariance(const OpDefinition& op, const device::Capabilities& caps);
void CheckPoolConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckRmsNormConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckRotaryConformance(const OpDefinition& op, const device::Capabilities& caps);
// `ops` holds the two single ops as well.
void CheckRotaryKvWriteConformance(std::span<const OpDefinition> ops,
                                   const device::Capabilities& caps);
void CheckScaleConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckScatterRowsConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckScoreTokensConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckSelectRowsConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckSelectTokensConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckSelectiveScanConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckSparseReluConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckSplitConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckStateSpaceScanConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckStreamWeightsConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckTakeTokensConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckUnfoldConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckWkvConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_CONFORMANCE_BODIES_H_
