// File: cc/ops/latent_write/latent_write_conformance.h
// Conformance checks for every kernel of `latent_write`: odd sizes, runs and single tokens, tokens
// that are not stored, infinities and NaN, padded rows, 1 to 3 threads; bit for bit, and no byte of
// another slot is touched.
#ifndef PAGEMILL_CC_OPS_LATENT_WRITE_LATENT_WRITE_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_LATENT_WRITE_LATENT_WRITE_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckLatentWriteConformance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_LATENT_WRITE_LATENT_WRITE_CONFORMANCE_H_
