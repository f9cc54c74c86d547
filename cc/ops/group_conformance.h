// File: cc/ops/group_conformance.h
// What the conformance bodies of collectives share (`all_gather`, `all_reduce`): a group of ranks,
// a thread each, with operands of their own. Test code only.
//
//   std::vector<GroupPart> parts;
//   for (...) parts.push_back({TestTensor(...), TestTensor(...)});
//   CheckGroup(row, parts, expected);
#ifndef PAGEMILL_CC_OPS_GROUP_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_GROUP_CONFORMANCE_H_

#include <vector>

#include "cc/ops/conformance.h"
#include "cc/ops/op.h"

namespace pagemill::ops::conformance {

// One rank's operands.
struct GroupPart {
  TestTensor x, y;
};

// Of operands at odd addresses and with odd strides, or at round ones.
TestTensorOptions GroupTensorOptions(bool odd);

// Runs `row` on every rank at once, with the attributes "ranks" and "rank": every y must have the
// bits of `expected`, and nothing else may be written. It is the group of the data axis, and "axis"
// says so: a row that takes another group finds none.
void CheckGroup(const Kernel& kernel, std::vector<GroupPart>& parts,
                const std::vector<float>& expected);

}  // namespace pagemill::ops::conformance

#endif  // PAGEMILL_CC_OPS_GROUP_CONFORMANCE_H_
