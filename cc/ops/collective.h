// File: cc/ops/collective.h
// Attributes of collectives (`all_gather`, `all_reduce`), which name the ranks that take part, and
// the group that they select; and how that group's devices find each other.
//
//   axis   a comm::Axis, by default 0 (tensor)
//   ranks  size of the group, 1 to 64; the executor checks that it is in such a group
//   rank   this rank's index in the group, for ops whose shapes depend on it
#ifndef PAGEMILL_CC_OPS_COLLECTIVE_H_
#define PAGEMILL_CC_OPS_COLLECTIVE_H_

#include "cc/base/status.h"
#include "cc/comm/group.h"
#include "cc/device/stream.h"
#include "cc/ops/op.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {

// Requires `axis`, `ranks` and `rank` to be in range.
void CheckGroupAttributes(OperandCheck& check, const Attributes& attributes);

// The group of an op; null if this rank is alone.
comm::Group* GroupOf(const Attributes& attributes, const KernelContext& context);

// kInvalidArgument if `groups` differ from those that the op was traced for; the message names the
// difference. OK for ops that are not collectives.
Status CheckGroups(const Attributes& attributes, const comm::Groups& groups);

// For streams of the group's ranks to join. `group` outlives them: some exchange all data by it.
device::Ranks RanksOf(comm::Group& group);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_COLLECTIVE_H_
