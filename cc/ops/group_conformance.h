// File: cc/ops/group_conformance.h
// Conformance checks of collectives (`all_gather`, `all_reduce`, what is fused with them): a group
// of ranks, one thread and one set of operands each. Test code only.
//
//   std::vector<GroupPart> parts;
//   for (...) parts.push_back({TestTensor(...), TestTensor(...)});
//   CheckGroup(kernel, parts, expected);
#ifndef PAGEMILL_CC_OPS_GROUP_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_GROUP_CONFORMANCE_H_

#include <vector>

#include "cc/ops/conformance.h"
#include "cc/ops/op.h"

namespace pagemill::ops::conformance {

// One rank's operands.
struct GroupPart {
  TestTensor x, y;
  std::vector<TestTensor> more_inputs = {}, more_outputs = {};  // behind them
};

// Options of operands with odd addresses and strides, or with aligned ones.
TestTensorOptions GroupTensorOptions(bool odd);

// Runs `kernel` on every rank at once, with `attributes` and "ranks" and "rank": every y must have
// the bits of `expected`, and nothing but outputs may be written. The group is that of the data
// axis, as "axis" says: a kernel that takes another group finds none.
void CheckGroup(const Kernel& kernel, std::vector<GroupPart>& parts,
                const std::vector<float>& expected, const Attributes& attributes = {});

}  // namespace pagemill::ops::conformance

#endif  // PAGEMILL_CC_OPS_GROUP_CONFORMANCE_H_
