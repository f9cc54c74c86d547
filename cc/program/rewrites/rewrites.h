// File: cc/program/rewrites/rewrites.h
// Named rewrites of a program that keep its results and make it cheaper (`docs/program_format.md`).
// What can be rewritten is said by the traits of the ops, not by their names.
//
//   PAGEMILL_ASSIGN_OR_RETURN(program, RewriteProgram(std::move(program), ops::CpuOps()));
//
// To add one: a file of its own beside this one, declared below, and an entry in rewrites.cc.
#ifndef PAGEMILL_CC_PROGRAM_REWRITES_REWRITES_H_
#define PAGEMILL_CC_PROGRAM_REWRITES_REWRITES_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "cc/base/status.h"
#include "cc/ops/op.h"
#include "cc/program/program.h"

namespace pagemill::program {

struct Rewrite {
  std::string_view name;
  // Applies wherever it fits and returns how often that was.
  StatusOr<int32_t> (*apply)(Program& program, std::span<const ops::OpDefinition> ops) = nullptr;
};

// In the order in which they are applied.
std::span<const Rewrite> Rewrites();

// Applies them all and checks the result.
StatusOr<Program> RewriteProgram(Program program, std::span<const ops::OpDefinition> ops);

// Two ops that a third computes in one (ops::FusedOps) become that third, at the place of the
// first, if the second may run there and the third takes their operands:
//   s = add(a, b); y = rms_norm(s, w)  ->  y, s = add_rms_norm(a, b, w)
//   q2, k2 = rotary(q, k, p, f); kv_write(k2, v, cache)
//     ->  q2, k2 = rotary_kv_write(q, k, p, f, v, cache)
// What the first computes is written as before, so others may read it.
StatusOr<int32_t> FuseOps(Program& program, std::span<const ops::OpDefinition> ops);

// y = linear(x, w); z = linear(x, u)  ->  y, z = linear(x, w, -, u, -). Products of the same inputs
// with weights of one format and the same attributes are one op, at the place of the first: q, k
// and v, gate and up. As many as the op takes (ops::MatrixInputs::max_count).
StatusOr<int32_t> MergeProducts(Program& program, std::span<const ops::OpDefinition> ops);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_REWRITES_REWRITES_H_
