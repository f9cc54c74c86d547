// File: cc/ops/embedding/embedding_conformance.h
// Conformance checks for every kernel of `embedding` that supports the call: every weight dtype,
// empty input, misaligned and padded operands, a scale, 1 and 3 threads; bit for bit, since the
// contract is exact.
#ifndef PAGEMILL_CC_OPS_EMBEDDING_EMBEDDING_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_EMBEDDING_EMBEDDING_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckEmbeddingConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_EMBEDDING_EMBEDDING_CONFORMANCE_H_
