// File: cc/ops/act_conformance.h
// What an op gives if its activations are bf16 or f16: bit for bit the results of its reference on
// the same values in f32, rounded once. So every kernel for these types is tested against the
// reference for f32, whose own errors the conformance body of the op bounds. Test code only.
//
//   CheckActTypes({.op = op, .caps = caps, .call = call, .act_inputs = 0b11});   // call is in f32
//
// For bf16 and for f16: the op's check takes the call, and refuses it if one of several activations
// has another type; every kernel that supports the call writes these bits and nothing else, with 1
// and 3 threads, in exactly its workspace, and where outputs share memory with inputs as the op's
// alias rules allow. Operands lie at odd addresses, with gaps between their rows; outputs, caches
// and the workspace are poisoned.
//
// Ops that are two in one (`add_rms_norm`, `rotary_kv_write`) round what lies between, too: they
// are compared with the two.
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
  const OpCall& call;           // with f32 activations; its outputs are not written
  uint32_t act_inputs = 0;      // bit i: input i is of type `act`
  uint32_t act_outputs = ~0u;   // likewise; others keep their type
  TestTensor* cache = nullptr;  // an input that the op writes
};

void CheckActTypes(const ActCase& c);

}  // namespace pagemill::ops::conformance

#endif  // PAGEMILL_CC_OPS_ACT_CONFORMANCE_H_
