// File: cc/ops/paged_attention/paged_attention_conformance.h
// Conformance checks for every kernel of `paged_attention`, on any back end with memory that the
// CPU can address. A back end's test passes its op definition and the capabilities of its machine.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_PAGED_ATTENTION_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_PAGED_ATTENTION_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

// Closeness to the reference over head dimensions, groups, block sizes, windows, bidirectional and
// capped scores, with all memory that a query must not read poisoned; the same bits with 1 to 3
// threads.
void CheckPagedAttentionConformance(const OpDefinition& op, const device::Capabilities& caps);

// A prompt in one step, in chunks of 64 and token by token, alone and among 31 other requests: each
// query's output has the same bits.
void CheckPagedAttentionInvariance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_PAGED_ATTENTION_CONFORMANCE_H_
