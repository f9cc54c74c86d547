// File: cc/program/bound/bound_program.h
// A program on one device as plain data: the kernel of each op and the addresses of its operands.
// Computed once, when a program is bound; executors (../native_executor.h,
// ../device/device_executor.h) only iterate over it.
//
//   const BoundProgram bound = Bind(program, kernels, plan, addresses);
//   StepCalls calls(bound);                                   // step_calls.h
//
// Addresses are device addresses. The host does not dereference them.
#ifndef PAGEMILL_CC_PROGRAM_BOUND_BOUND_PROGRAM_H_
#define PAGEMILL_CC_PROGRAM_BOUND_BOUND_PROGRAM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <vector>

#include "cc/ops/batch_view.h"
#include "cc/ops/op.h"
#include "cc/program/executor_options.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/memory/activation_plan.h"
#include "cc/program/program.h"
#include "cc/tensor/quantized.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::program {

// A weight operand of one op.
struct WeightOperand {
  const std::byte* data = nullptr;  // null: only its parts are read
  bool reordered = false;           // packed for its kernel (ops::WeightPacking), not row-major
};

// Base addresses of a program's memory.
struct Addresses {
  std::byte* activations = nullptr;  // the arena of the ActivationPlan
  std::byte* outputs = nullptr;      // the program's outputs, one after the other
  std::byte* kv = nullptr;           // the arena of the KvLayout
  std::byte* plans = nullptr;        // KernelSelection::plan_bytes
  std::byte* workspace = nullptr;    // KernelSelection::workspace_bytes
  // The weight that is input `input` of op `op`.
  std::function<WeightOperand(size_t op, size_t input)> weight;
  // A part of quantized weights, row-major; null if no kernel reads it.
  std::function<const std::byte*(ValueId part)> part;
  // The table of an adapter (ops::AdapterMatrices); not called for a program without.
  std::function<void*(ValueId adapter)> adapter = nullptr;
};

// An operand whose dimension 0 is `rows_of_each` (RowsOfEach()) times a dimension of the step.
struct SizedOperand {
  uint32_t operand = 0;
  int64_t rows_of_each = 1;
};

struct BoundOp {
  const ops::Kernel* kernel = nullptr;
  const ops::Attributes* attributes = nullptr;  // the program's
  uint32_t first_operand = 0;                   // inputs, then outputs
  uint32_t num_inputs = 0;
  uint32_t num_outputs = 0;
  uint32_t table = 0;               // the block table of its cache; 0 if it has none
  const std::byte* plan = nullptr;  // this kernel's plan of the step (ops::BatchPlan)
};

// The source program must outlive it.
struct BoundProgram {
  std::vector<BoundOp> ops;
  std::vector<TensorView> operands;  // of all ops, at the largest step; rank 0 if omitted
  std::vector<std::unique_ptr<const QuantizedParts>> parts;  // of operands
  // Operands whose dimension 0 follows ops::kDims[i], and those that are ops::kStepArrays[i].
  std::array<std::vector<SizedOperand>, std::size(ops::kDims)> by_dim;
  std::array<std::vector<uint32_t>, std::size(ops::kStepArrays)> by_array;
  std::vector<ValueId> inputs;                  // Program::TensorInputs()
  std::vector<std::vector<uint32_t>> by_input;  // operands that read inputs[i]
  std::vector<std::byte*> values;  // per value: activations and outputs; null for others
  size_t num_tables = 0;           // block tables per step
  std::span<std::byte> workspace;  // for kernels
};

BoundProgram Bind(const Program& program, const KernelSelection& kernels,
                  const ActivationPlan& activations, const ExecutorOptions& options,
                  const Addresses& addresses);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_BOUND_BOUND_PROGRAM_H_
