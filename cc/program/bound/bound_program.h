// File: cc/program/bound/bound_program.h
// A program on one device as plain data: the kernel of each op, and where its operands lie. What is
// decided once, when a program is bound; what runs it (../native_executor.h,
// ../device/device_executor.h) only walks it.
//
//   const BoundProgram bound = Bind(program, kernels, plan, addresses);
//   StepCalls calls(bound);                                   // step_calls.h
//
// Addresses are those of the device. The host reads nothing through them.
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

// A weight as one op reads it.
struct WeightOperand {
  const std::byte* data = nullptr;  // null: its parts alone
  bool reordered = false;           // in its kernel's order (ops::WeightPacking), not row by row
};

// Where the memory of a program lies.
struct Addresses {
  std::byte* activations = nullptr;  // the arena of the ActivationPlan
  std::byte* outputs = nullptr;      // the program's outputs, one after the other
  std::byte* kv = nullptr;           // the arena of the KvLayout
  std::byte* workspace = nullptr;    // of KernelSelection::workspace_bytes
  // Input `input` of op `op`, which is a weight.
  std::function<WeightOperand(size_t op, size_t input)> weight;
  // A part of quantized weights, row by row; null if no kernel reads it.
  std::function<const std::byte*(ValueId part)> part;
};

struct BoundOp {
  const ops::Kernel* kernel = nullptr;
  const ops::Attributes* attributes = nullptr;  // the program's
  uint32_t first_operand = 0;                   // inputs, then outputs
  uint32_t num_inputs = 0;
  uint32_t num_outputs = 0;
  uint32_t table = 0;               // the block table of its cache; 0 if it has none
  const std::byte* plan = nullptr;  // of the step, for this kernel (ops::BatchPlan)
};

// The program that it was made from outlives it.
struct BoundProgram {
  std::vector<BoundOp> ops;
  std::vector<TensorView> operands;  // of all ops, at the largest step; rank 0 if one is left out
  std::vector<std::unique_ptr<const QuantizedParts>> parts;  // of operands
  // Operands whose dimension 0 is ops::kDims[i], and those that are ops::kStepArrays[i].
  std::array<std::vector<uint32_t>, std::size(ops::kDims)> by_dim;
  std::array<std::vector<uint32_t>, std::size(ops::kStepArrays)> by_array;
  std::vector<ValueId> inputs;                  // Program::TensorInputs()
  std::vector<std::vector<uint32_t>> by_input;  // operands that are inputs[i]
  std::vector<std::byte*> values;  // of every value: activations and outputs; null for others
  size_t num_tables = 0;           // block tables of a step
  std::span<std::byte> workspace;  // of kernels, behind the plans
};

BoundProgram Bind(const Program& program, const KernelSelection& kernels,
                  const ActivationPlan& activations, const ExecutorOptions& options,
                  const Addresses& addresses);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_BOUND_BOUND_PROGRAM_H_
