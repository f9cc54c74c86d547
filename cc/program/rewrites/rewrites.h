// File: cc/program/rewrites/rewrites.h
// Named rewrites of a program that keep its results and make it cheaper (`docs/program_format.md`).
//
//   PM_ASSIGN_OR_RETURN(program, RewriteProgram(std::move(program)));
//
// To add one: a file of its own beside this one, declared below, and a row in rewrites.cc.
#ifndef PAGEMILL_CC_PROGRAM_REWRITES_REWRITES_H_
#define PAGEMILL_CC_PROGRAM_REWRITES_REWRITES_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "cc/base/status.h"
#include "cc/program/program.h"

namespace pagemill::program {

struct Rewrite {
  std::string_view name;
  // Applies wherever it fits and returns how often that was.
  int32_t (*apply)(Program& program) = nullptr;
};

// In the order in which they are applied.
std::span<const Rewrite> Rewrites();

// Applies them all and checks the result.
StatusOr<Program> RewriteProgram(Program program);

// s = add(a, b); y = rms_norm(s, w)  ->  y, s = add_rms_norm(a, b, w). The sum is written as
// before, so others may read it. Fuses the first rms_norm of a sum, of equal shapes of rank 2.
int32_t FuseAddRmsNorm(Program& program);

// y = linear(x, w); z = linear(x, u)  ->  y, z = linear(x, w, -, u, -). Products of one value with
// weights of one dtype are one op, at the place of the first: q, k and v, gate and up. At most
// ops::kMaxMatrices of them. Their weights are of one format.
int32_t FuseLinears(Program& program);

// q2, k2 = rotary(q, k, positions, f); kv_write(k2, v, cache)
//   ->  q2, k2 = rotary_kv_write(q, k, positions, f, v, cache)
// where v exists before the rotary and no op between the two has to do with the cache.
int32_t FuseRotaryKvWrite(Program& program);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_REWRITES_REWRITES_H_
