// File: cc/ops/all_reduce_add_rms_norm/all_reduce_add_rms_norm_conformance.h
// What every kernel of `all_reduce_add_rms_norm` has to pass; see cc/ops/conformance_bodies.h. Test
// code only.
#ifndef PAGEMILL_CC_OPS_ALL_REDUCE_ADD_RMS_NORM_ALL_REDUCE_ADD_RMS_NORM_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_ALL_REDUCE_ADD_RMS_NORM_ALL_REDUCE_ADD_RMS_NORM_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckAllReduceAddRmsNormConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ALL_REDUCE_ADD_RMS_NORM_ALL_REDUCE_ADD_RMS_NORM_CONFORMANCE_H_
