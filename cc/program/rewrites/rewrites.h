// File: cc/program/rewrites/rewrites.h
// Named rewrites that make a program cheaper and keep its results (`docs/program_format.md`). Ops'
// traits, not their names, say what can be rewritten.
//
//   PAGEMILL_ASSIGN_OR_RETURN(program, RewriteProgram(std::move(program), ops::CpuOps()));
//
// To add one: a new file beside this one, a declaration below, and an entry in rewrites.cc.
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
  // Applies the rewrite wherever it fits and returns the number of changes.
  StatusOr<int32_t> (*apply)(Program& program, std::span<const ops::OpDefinition> ops) = nullptr;
};

// In order of application.
std::span<const Rewrite> Rewrites();

// Applies all rewrites and checks the result.
StatusOr<Program> RewriteProgram(Program program, std::span<const ops::OpDefinition> ops);

// Replaces two ops by a third that computes both (ops::FusedOps), at the position of the first, if
// the second may run there and the third accepts their operands:
//   s = add(a, b); y = rms_norm(s, w)  ->  y, s = add_rms_norm(a, b, w)
//   q2, k2 = rotary(q, k, p, f); kv_write(k2, v, cache)
//     ->  q2, k2 = rotary_kv_write(q, k, p, f, v, cache)
//   r = all_reduce(x); y, s = add_rms_norm(a, r, w)  ->  y, s, r = all_reduce_add_rms_norm(x, a, w)
// The first op's outputs are still written, so other ops may read them.
StatusOr<int32_t> FuseOps(Program& program, std::span<const ops::OpDefinition> ops);

// y = linear(x, w); z = linear(x, u)  ->  y, z = linear(x, w, -, u, -). Products of the same inputs
// with weights of one format and the same attributes are one op, at the place of the first: q, k
// and v, gate and up. At most ops::MatrixInputs::max_count per op.
StatusOr<int32_t> MergeProducts(Program& program, std::span<const ops::OpDefinition> ops);

// z = apply_adapter(x, s, -, -, y, a); w = apply_adapter(x, s, -, -, v, b)
//   ->  z, w = apply_adapter(x, s, -, -, y, a, v, b)
// Adapters of products that MergeProducts() has joined are one op, too.
StatusOr<int32_t> MergeAdapters(Program& program, std::span<const ops::OpDefinition> ops);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_REWRITES_REWRITES_H_
