// File: cc/ops/act_conformance.h
// Conformance checks for bf16 and f16 activations: results must be, bit for bit, those of the op's
// f32 reference on the same values, rounded once; or, for kernels that compute in other orders than
// the reference, a value within the op's tolerance of it, rounded once. The error of the f32
// reference itself is bounded by the op's own conformance checks. Test code only.
//
//   CheckActTypes({.op = op, .caps = caps, .call = call, .act_inputs = 0b11});   // call is in f32
//
// For bf16 and for f16: the op's check accepts the call, and refuses it if one of several
// activations has another type; every kernel that supports the call writes these bits and nothing
// else, with 1 and 3 threads, in exactly its workspace, also when outputs alias inputs as the op's
// alias rules allow. With a tolerance, these are the bits of the kernel's first run, and only the
// reference has to write those that are expected. Operands are misaligned, with gaps between their rows; outputs, caches and the
// workspace are poisoned.
//
// Fused ops (`add_rms_norm`, `rotary_kv_write`) also round the value between the two ops: their
// tests compare them with the single ops.
#ifndef PAGEMILL_CC_OPS_ACT_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_ACT_CONFORMANCE_H_

#include <cstdint>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"

namespace pagemill::ops::conformance {

struct ActCase {
  const OpDefinition& op;
  const device::Capabilities& caps;
  const OpCall& call;              // with f32 activations; its outputs are not written
  uint32_t act_inputs = 0;         // bit i: input i is of type `act`
  uint32_t act_outputs = ~0u;      // likewise; others keep their type
  TestTensor* cache = nullptr;     // an input that the op writes
  Tolerance tolerance = {};        // of outputs before they are rounded
  Tolerance cache_tolerance = {};  // likewise of the cache
};

void CheckActTypes(const ActCase& c);

}  // namespace pagemill::ops::conformance

#endif  // PAGEMILL_CC_OPS_ACT_CONFORMANCE_H_
