// File: cc/ops/collective.h
// What collectives share (`all_gather`, `all_reduce`): the attributes that say between which ranks
// they are made, and the group that these name.
//
//   axis   a comm::Axis, by default 0 (tensor)
//   ranks  how many ranks the group has, 1 to 64; the executor checks that it is in such a group
//   rank   this one's place in it, of ops whose shapes depend on it
#ifndef PAGEMILL_CC_OPS_COLLECTIVE_H_
#define PAGEMILL_CC_OPS_COLLECTIVE_H_

#include "cc/base/status.h"
#include "cc/comm/group.h"
#include "cc/ops/op.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {

// Are `axis`, `ranks` and `rank` in range?
void CheckGroupAttributes(OperandCheck& check, const Attributes& attributes);

// The group of an op; null: this rank is alone.
comm::Group* GroupOf(const Attributes& attributes, const KernelContext& context);

// kInvalidArgument says how `groups` differ from those that the op was traced for. OK for ops that
// are no collectives.
Status CheckGroups(const Attributes& attributes, const comm::Groups& groups);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_COLLECTIVE_H_
