// File: cc/ops/state_space_scan/state_space_scan_conformance.h
// Conformance checks for every kernel of `state_space_scan` (state_conformance.h), for odd sizes.
#ifndef PAGEMILL_CC_OPS_STATE_SPACE_SCAN_STATE_SPACE_SCAN_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_STATE_SPACE_SCAN_STATE_SPACE_SCAN_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckStateSpaceScanConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_STATE_SPACE_SCAN_STATE_SPACE_SCAN_CONFORMANCE_H_
