// File: cc/program/kernel_selection.h
// Selects the kernel for each op of a program on this machine and computes the workspace.
#ifndef PAGEMILL_CC_PROGRAM_KERNEL_SELECTION_H_
#define PAGEMILL_CC_PROGRAM_KERNEL_SELECTION_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/comm/group.h"
#include "cc/device/capabilities.h"
#include "cc/ops/op.h"
#include "cc/program/executor_options.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/program.h"

namespace pagemill::program {

// The device that a program is bound to: its op table and its capabilities.
struct Target {
  std::span<const ops::OpDefinition> ops;
  device::Capabilities capabilities = {};
  comm::Groups groups = {};  // for the program's collectives; empty: a single rank
};

struct KernelSelection {
  // One per op of the program.
  std::vector<const ops::OpDefinition*> definitions;
  std::vector<const ops::Kernel*> kernels;
  KvLayout kv;
  int32_t num_threads = 1;
  // Shared by ops that run one after the other: that of the op that needs most.
  int64_t workspace_bytes = 0;
  struct Plan {
    size_t op = 0;  // the first that reads it
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  std::vector<Plan> plans;        // recomputed in every step (ops::BatchPlan)
  std::vector<int32_t> op_plans;  // per op: index into `plans`; -1 = none
  int64_t plan_bytes = 0;         // total, a multiple of 64
};

// The kernel that runs `call`, an op's largest, under the limits of `options`: the one named
// options.kernel_filter if it can, else the best.
StatusOr<const ops::Kernel*> ChooseKernelFor(const ops::OpDefinition& definition,
                                             const device::Capabilities& capabilities,
                                             const ops::OpCall& call,
                                             const ExecutorOptions& options);

CacheGeometry GeometryOf(const ExecutorOptions& options);

// `program` must have the activation type of `options` (Program::SetActivationType). Checks options
// and operands, then chooses kernels for the largest shapes of a step. An op without a suitable
// kernel named options.kernel_filter gets its best one; if that holds for every op, returns
// kInvalidArgument with the available names.
StatusOr<KernelSelection> SelectKernels(const Program& program, const Target& target,
                                        const ExecutorOptions& options);

// kInvalidArgument for a collective that was traced for other ranks than the target has.
Status CheckRanks(const Program& program, const Target& target);

// The number of times that a kernel runs an op on these operands, in order of first use (`pagemill
// doctor`).
struct KernelChoice {
  std::string op;
  std::string operands;  // "f32[2048,576] q4_1[960,576] - -> f32[2048,960]"
  std::string kernel;
  int32_t count = 0;
};

std::vector<KernelChoice> Summarize(const Program& program, const KernelSelection& selection,
                                    const ExecutorOptions& options);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_KERNEL_SELECTION_H_
