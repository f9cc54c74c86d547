// File: cc/program/device/device_plan.h
// The memory that a program takes on a device and, for copies, on the host, in bytes: computed from
// the program before anything is allocated, and what DeviceExecutor allocates.
//
//   PAGEMILL_ASSIGN_OR_RETURN(DevicePlan plan, PlanDevice(program, target, options, {}));
//   PAGEMILL_RETURN_IF_ERROR(CheckFits(plan, device.CountMemory()));
//   std::cout << plan.ToString();
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_PLAN_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/device.h"
#include "cc/program/adapters/device_adapters.h"
#include "cc/program/device/device_options.h"
#include "cc/program/device/tokens/device_tokens.h"
#include "cc/program/executor_options.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/memory/activation_plan.h"
#include "cc/program/program.h"

namespace pagemill::program {

struct DevicePlan {
  KernelSelection kernels;
  ActivationPlan activations;       // the arena, for the largest step
  std::optional<TokenPlan> tokens;  // if tokens are chosen on the device
  std::vector<int64_t> input_offsets;  // of Program::TensorInputs(), in the memory of inputs

  int64_t weight_bytes = 0;
  int64_t host_weight_bytes = 0;  // of weights that kernels read from the host's memory
  int64_t kv_bytes = 0;      // of the KV cache; 0 if it lies in another executor's
  int64_t output_bytes = 0;  // of the largest step, as the following two
  int64_t array_bytes = 0;   // the kernels' plans of a step, and behind them its arrays
  int64_t input_bytes = 0;   // tensors of a step
  DeviceAdapterPlan adapters;
  int64_t exchange_bytes = 0;  // that other ranks write to; 0 without collectives
  // What the device's driver takes for graphs: an estimate, which nothing has measured yet.
  int64_t graph_bytes = 0;
  // Host memory of a step in flight, without its tokens: the kernels' plans of it, its arrays,
  // inputs and outputs, and tables of adapters.
  int64_t slot_bytes = 0;
  int64_t upload_bytes = 0;  // host memory that weights go through, freed when they are there
  int64_t copy_bytes = 0;    // host memory that copies of KV pages go through
  int32_t num_slots = 0;

  // Bytes of a part of a slot, with what lies between it and the next one.
  static int64_t Aligned(int64_t bytes);
  // Where the arrays of a step begin, behind the kernels' plans: both are sent in one copy.
  int64_t arrays_offset() const { return Aligned(kernels.plan_bytes); }
  const KvLayout& kv() const { return kernels.kv; }
  int64_t mask_bytes() const { return tokens ? tokens->mask_bytes() : 0; }
  int64_t count_bytes() const { return tokens ? tokens->adjuster.count_bytes() : 0; }
  int64_t row_copy_bytes() const { return tokens ? tokens->scorer.copy_bytes() : 0; }
  // Everything that is allocated on the device.
  int64_t allocated_bytes() const;
  int64_t total_bytes() const { return allocated_bytes() + graph_bytes; }
  // At most, of the host's memory, until it is created. Loading weights later takes upload_bytes
  // more, and a host tier what it asks DevicePages for.
  int64_t host_bytes() const;
  // One line each, in MiB.
  std::string ToString() const;
};

DeviceAdapterOptions AdapterOptions(const ExecutorOptions& options,
                                    const DeviceExecutorOptions& device_options);

// Opens no file. Returns the errors of SelectKernels() and PlanTokens(), and those of the options:
// kInvalidArgument also if more weights are to be offloaded than may be.
StatusOr<DevicePlan> PlanDevice(const Program& program, const Target& target,
                                const ExecutorOptions& options,
                                const DeviceExecutorOptions& device_options);

// kResourceExhausted if the plan does not fit: what it takes, what is free, and which flag makes it
// fit.
Status CheckFits(const DevicePlan& plan, const device::MemoryBytes& memory);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_PLAN_H_
