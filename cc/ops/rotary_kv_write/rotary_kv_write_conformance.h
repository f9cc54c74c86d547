// File: cc/ops/rotary_kv_write/rotary_kv_write_conformance.h
// Conformance checks for every kernel of `rotary_kv_write`: the same bits as `rotary` followed by
// `kv_write`. Test code only.
#ifndef PAGEMILL_CC_OPS_ROTARY_KV_WRITE_ROTARY_KV_WRITE_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_ROTARY_KV_WRITE_ROTARY_KV_WRITE_CONFORMANCE_H_

#include <span>

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

// `ops` holds the two single ops as well.
void CheckRotaryKvWriteConformance(std::span<const OpDefinition> ops,
                                   const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ROTARY_KV_WRITE_ROTARY_KV_WRITE_CONFORMANCE_H_
