// File: cc/program/check_ops.h
// Checks that the operands of every op satisfy the op's contract: the part of a program's
// validation that needs an op table.
#ifndef PAGEMILL_CC_PROGRAM_CHECK_OPS_H_
#define PAGEMILL_CC_PROGRAM_CHECK_OPS_H_

#include <span>

#include "cc/base/status.h"
#include "cc/ops/op.h"
#include "cc/program/program.h"

namespace pagemill::program {

// Returns kUnimplemented for an op that the table lacks, else the result of the op's `check`; the
// message names the program's line. T, R and L get different sizes, so that a mix-up is detected.
// `kv` is the cache dtype that `kv` stands for: some ops reject some dtypes.
Status CheckOps(const Program& program, std::span<const ops::OpDefinition> ops, DType kv);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_CHECK_OPS_H_
