// File: cc/program/check_ops.h
// Checks that the operands of every op satisfy the op's contract: the part of a program's
// validation that needs an op table.
#ifndef PAGEMILL_CC_PROGRAM_CHECK_OPS_H_
#define PAGEMILL_CC_PROGRAM_CHECK_OPS_H_

#include <span>

#include "cc/base/status.h"
#include "cc/ops/op.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/program.h"

namespace pagemill::program {

// The result of `definition.check` for the operands of `op`; the message names the program's line.
// Checks compare numbers, so each dimension (tokens, requests, ...) has two numbers in turn that no
// other has: a mix-up of dimensions is found, and so is a number where a dimension belongs.
Status CheckOp(const Program& program, const Op& op, const ops::OpDefinition& definition,
               const KvLayout& layout);

// CheckOp() of all ops; kUnimplemented for an op that the table lacks. `kv` is the cache dtype that
// `kv` stands for: some ops reject some dtypes.
Status CheckOps(const Program& program, std::span<const ops::OpDefinition> ops, DType kv);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_CHECK_OPS_H_
