// File: cc/ops/rowwise_conformance.h
// Conformance checks of rowwise ops, which compute every row (dimension 0) independently:
// normalizations, activations, rotary. Test code only.
//
//   RowCase c{.op = LayerNormOp()};
//   c.AddRows({5, 65});      // x: one row per row of the output
//   c.AddShared({65});       // w: the same for all rows
//   c.AddOutput({5, 65});
//   c.attributes.Set("eps", 1e-5);
//   c.tolerance = {.abs = 1e-5};
//   CheckRowCase(c, caps);
//
// For every kernel that supports the call, the outputs must be close to the reference's, written
// within their bounds, and have the same bits with 1 and 3 threads, when each row is computed alone,
// and when outputs alias inputs as the op's alias rules allow. A call without rows writes nothing.
// The same is checked in bf16 and f16 (act_conformance.h).
#ifndef PAGEMILL_CC_OPS_ROWWISE_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_ROWWISE_CONFORMANCE_H_

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"

namespace pagemill::ops::conformance {

struct RowCase {
  const OpDefinition& op;
  std::vector<TestTensor> inputs = {};
  std::vector<bool> input_has_rows = {};  // false: every row reads the whole input
  uint32_t act_inputs = 0;                // bit i: input i is of type `act`; 0: f32 only
  std::vector<TestTensor> outputs = {};
  Attributes attributes = {};
  Tolerance tolerance = {};
  Random random = Random(1);

  // f32 tensors of values in [-2, 2), 4 bytes past a 64-byte boundary, rows padded by 4 bytes.
  // Those of AddRows() are activations.
  TestTensor& AddRows(std::initializer_list<int64_t> dims);
  TestTensor& AddShared(std::initializer_list<int64_t> dims);
  void AddOutput(std::initializer_list<int64_t> dims);
};

void CheckRowCase(RowCase& c, const device::Capabilities& caps);

// For ops that copy rows: the op's check must accept `call`, whose only output is y, and every
// kernel that supports it must write the bits of `expected` and nothing else, with 1 and with 3
// threads.
void CheckBits(const OpDefinition& op, const device::Capabilities& caps, const OpCall& call,
               TestTensor& y, const std::vector<float>& expected);

}  // namespace pagemill::ops::conformance

#endif  // PAGEMILL_CC_OPS_ROWWISE_CONFORMANCE_H_
