// File: cc/program/check_ops.h
// Do the operands of every op fit the op's contract? The part of a program's validation that needs
// an op table.
#ifndef PAGEMILL_CC_PROGRAM_CHECK_OPS_H_
#define PAGEMILL_CC_PROGRAM_CHECK_OPS_H_

#include <span>

#include "cc/base/status.h"
#include "cc/ops/op.h"
#include "cc/program/program.h"

namespace pagemill::program {

// kUnimplemented for an op that the table lacks, else what the op's `check` says; the message names
// the program's line. T, R and L are given different sizes, so that a mix-up shows. `kv` is what
// that stands for as a cache's dtype: not every op takes every one.
Status CheckOps(const Program& program, std::span<const ops::OpDefinition> ops, DType kv);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_CHECK_OPS_H_
