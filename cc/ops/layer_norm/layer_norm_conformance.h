// File: cc/ops/layer_norm/layer_norm_conformance.h
// What every kernel row of `layer_norm` must fulfil: closeness to the reference within the
// contract's bound for odd sizes, and what rowwise_conformance.h checks. A back end's test calls it
// with its table and its machine.
#ifndef PAGEMILL_CC_OPS_LAYER_NORM_LAYER_NORM_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_LAYER_NORM_LAYER_NORM_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckLayerNormConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_LAYER_NORM_LAYER_NORM_CONFORMANCE_H_
