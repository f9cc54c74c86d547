// File: cc/program/memory/activation_plan.h
// Offsets of all activations in a program's one arena: exact, computed ahead of time from
// lifetimes.
//
//   ActivationPlan plan = PlanActivations(program, ops, {.tokens = 2048, .requests = 128, ...});
//   std::byte* x = arena + plan.offsets[x_id.value()];
//
// A value lives from the op that writes it to the last op that reads it, both included. Two values
// that are alive at the same op do not overlap, except that an output may take over the memory of
// an input that dies there, if the op's definition allows the pair (AliasRule). Program outputs are
// not in the arena: they outlive the step. Offsets are multiples of 64.
//
// O(n^2) in the number of values. Deterministic.
#ifndef PAGEMILL_CC_PROGRAM_MEMORY_ACTIVATION_PLAN_H_
#define PAGEMILL_CC_PROGRAM_MEMORY_ACTIVATION_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "cc/ops/op.h"
#include "cc/program/program.h"

namespace pagemill::program {

// Op indices, both inclusive; first = -1 for a value that no op writes.
struct Lifetime {
  int32_t first = -1;
  int32_t last = -1;
};

// One per value. A value that no op reads dies at the op that writes it.
std::vector<Lifetime> Lifetimes(const Program& program);

struct ActivationPlan {
  static constexpr int64_t kNotInArena = -1;

  std::vector<int64_t> offsets;  // per value, in bytes
  int64_t arena_bytes = 0;
};

// `program` must have passed CheckOps(program, ops).
ActivationPlan PlanActivations(const Program& program, std::span<const ops::OpDefinition> ops,
                               const StepSizes& max_sizes);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_MEMORY_ACTIVATION_PLAN_H_
