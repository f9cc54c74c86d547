// File: cc/ops/latent_attention/latent_attention_conformance.h
// Conformance checks for every kernel of `latent_attention`: results close to the reference for
// both cache types, odd sizes, batches of prompts, chunks and decoded tokens; and the same bits
// with 1 to 3 threads and however a prompt is divided into steps.
#ifndef PAGEMILL_CC_OPS_LATENT_ATTENTION_LATENT_ATTENTION_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_LATENT_ATTENTION_LATENT_ATTENTION_CONFORMANCE_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

void CheckLatentAttentionConformance(const OpDefinition& op, const device::Capabilities& caps);
void CheckLatentAttentionInvariance(const OpDefinition& op, const device::Capabilities& caps);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_LATENT_ATTENTION_LATENT_ATTENTION_CONFORMANCE_H_
