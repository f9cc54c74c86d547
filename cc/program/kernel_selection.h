// File: cc/program/kernel_selection.h
// Which kernel runs each op of a program on this machine, and how much workspace that takes.
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

// The device that a program is bound to: its op table and what it can do.
struct Target {
  std::span<const ops::OpDefinition> ops;
  device::Capabilities capabilities = {};
  comm::Groups groups = {};  // of the program's collectives; none: this rank is alone
};

struct KernelSelection {
  // Of each op of the program.
  std::vector<const ops::OpDefinition*> definitions;
  std::vector<const ops::Kernel*> kernels;
  KvLayout kv;
  int32_t num_threads = 1;
  // Shared by ops that run one after the other: first the plans of a step, then what the op that
  // needs most of it works in.
  int64_t workspace_bytes = 0;
  struct Plan {
    size_t op = 0;  // the first that reads it
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  std::vector<Plan> plans;        // made anew in every step (ops::BatchPlan)
  std::vector<int32_t> op_plans;  // of each op: an index into `plans`; -1: it has none
  int64_t plan_bytes = 0;         // of all plans, a multiple of 64
};

CacheGeometry GeometryOf(const ExecutorOptions& options);

// `program` has the options' type of activations (Program::SetActivationType). Checks options and
// operands, then chooses for the largest shapes of a step. An op without a kernel named
// options.kernel_filter that fits gets the best one; kInvalidArgument, with the names that there
// are, where that holds for all ops.
StatusOr<KernelSelection> SelectKernels(const Program& program, const Target& target,
                                        const ExecutorOptions& options);

// How often which kernel runs which op on which operands, in order of first use (`pagemill
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
