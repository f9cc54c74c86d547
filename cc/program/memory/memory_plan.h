// File: cc/program/memory/memory_plan.h
// The memory that a bound program takes, in bytes, exact and computed before anything is allocated.
//
//   PAGEMILL_ASSIGN_OR_RETURN(MemoryPlan plan, PlanMemory(program, target, options));
//   std::cout << plan.ToString();
#ifndef PAGEMILL_CC_PROGRAM_MEMORY_MEMORY_PLAN_H_
#define PAGEMILL_CC_PROGRAM_MEMORY_MEMORY_PLAN_H_

#include <cstdint>
#include <string>

#include "cc/base/status.h"
#include "cc/program/executor_options.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/program.h"

namespace pagemill::program {

struct MemoryPlan {
  int64_t weights_bytes = 0;  // in kernel layout; mapped from files, except packed_bytes
  int64_t packed_bytes = 0;   // of weights_bytes: copied (weights.h) or packed (packed_weights.h)
  int64_t offloaded_bytes = 0;   // further weights, which a device reads from the host's memory
  int64_t activation_bytes = 0;  // the arena, for the largest step
  int64_t workspace_bytes = 0;   // plans of a step, and the maximum over ops
  int64_t output_bytes = 0;      // the program's outputs, for the largest step
  KvLayout kv;                   // of options.num_blocks pages

  // Without offloaded_bytes, which lie in another memory.
  int64_t total_bytes() const {
    return weights_bytes + activation_bytes + workspace_bytes + output_bytes + kv.arena_bytes();
  }
  // One line each, in MiB.
  std::string ToString() const;
};

// Opens no file. Returns the errors of SelectKernels().
StatusOr<MemoryPlan> PlanMemory(const Program& program, const Target& target,
                                const ExecutorOptions& options);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_MEMORY_MEMORY_PLAN_H_
