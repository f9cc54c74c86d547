#include "cc/ops/testing/test_device_ops.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/device/testing/test_device.h"
#include "cc/ops/apply_adapter/adapter_matrices.h"
#include "cc/ops/apply_adapter/apply_adapter.h"
#include "cc/tensor/quantized.h"

namespace pagemill::ops::testing {
namespace {

using device::testing::TestStream;
using device::testing::TestWorker;

// More than there are ops. Kernels are function pointers, so each op needs its own instance.
constexpr size_t kMaxOps = 64;

// The kernel that the enqueued work runs: the best one for this call that every CPU supports and
// that reads weights as stored. Null if the op has none.
const Kernel* PlainKernel(const OpDefinition& op, const OpCall& call) {
  const Kernel* best = nullptr;
  for (const Kernel& kernel : op.kernels) {
    if (best != nullptr && best->priority > kernel.priority) continue;
    if (kernel.packing == nullptr && kernel.supports({}, call)) best = &kernel;
  }
  return best;
}

// A copy of a call with device addresses, which outlives the original call.
struct Launch {
  Launch(const Kernel& kernel, const OpCall& call, const KernelContext& context)
      : kernel(kernel),
        inputs(call.inputs.begin(), call.inputs.end()),
        outputs(call.outputs.begin(), call.outputs.end()),
        attributes(call.attributes),
        workspace(context.workspace),
        plan(context.plan) {
    if (call.batch != nullptr) batch = *call.batch;
  }

  Status Run(TestWorker& worker) const;

  const Kernel& kernel;
  const std::vector<TensorView> inputs, outputs;
  const Attributes* const attributes;
  std::optional<BatchView> batch;
  const std::span<std::byte> workspace;
  const std::byte* const plan;
};

// Operands that are pointers to tables, whose views have the shapes of matrices.
bool IsAdapterTable(const Kernel& kernel, size_t input) {
  constexpr size_t kFirst = apply_adapter::TableOperand(0);
  constexpr size_t kStride = apply_adapter::TableOperand(1) - kFirst;
  return kernel.op == "apply_adapter" && input >= kFirst && (input - kFirst) % kStride == 0;
}

class Translator {
 public:
  Translator(TestWorker& worker, std::string_view op) : worker_(worker), op_(op) {}

  void Operand(TensorView* view, const char* what, size_t index) {
    if (view->rank == 0 || view->shape[0] == 0 || view->data == nullptr) return;
    const int64_t bytes =
        (view->shape[0] - 1) * view->row_stride_bytes + RowBytes(view->dtype, view->RowElements());
    view->data = Address(view->data, bytes, what + std::to_string(index));
    if (view->parts == nullptr) return;
    QuantizedParts& parts = parts_.emplace_back(*view->parts);
    for (TensorView* part : parts.all()) {
      if (part->rank > 0) Operand(part, "a part of input ", index);
    }
    view->parts = &parts;
  }

  // Its first entry; how many there are is not in the view.
  void AdapterTable(TensorView* view, size_t index) {
    view->data = Address(view->data, sizeof(AdapterMatrices), "table " + std::to_string(index));
  }

  template <typename Arrays>
  void Array(const ArrayInfo<Arrays>& info, BatchView* batch) {
    const int64_t rows = NumRows(info, *batch);
    const int64_t bytes = rows * NumColumns(info, batch->block_table_stride) * 4;
    if (bytes == 0 || batch->*info.data == nullptr) return;
    batch->*info.data = reinterpret_cast<const int32_t*>(
        Address(batch->*info.data, bytes, "array " + std::string(info.name)));
  }

  std::byte* Address(const void* address, int64_t bytes, const std::string& what) {
    std::byte* const found = worker_.Find(address, bytes);
    if (found == nullptr && status_.ok()) {
      status_ = Internal(std::string(op_) + ": " + what + " is not device memory");
    }
    return found;
  }

  const Status& status() const { return status_; }

 private:
  TestWorker& worker_;
  const std::string_view op_;
  std::deque<QuantizedParts> parts_;  // of operands
  Status status_;
};

Status Launch::Run(TestWorker& worker) const {
  Translator translator(worker, kernel.op);
  std::vector<TensorView> in = inputs, out = outputs;
  for (size_t i = 0; i < in.size(); ++i) {
    if (IsAdapterTable(kernel, i)) {
      translator.AdapterTable(&in[i], i);
    } else {
      translator.Operand(&in[i], "input ", i);
    }
  }
  for (size_t i = 0; i < out.size(); ++i) translator.Operand(&out[i], "output ", i);
  std::optional<BatchView> step = batch;
  if (step) {
    for (const auto& info : kStepArrays) translator.Array(info, &*step);
    for (const auto& info : kKvArrays) translator.Array(info, &*step);
  }
  KernelContext context = {.pool = &worker.pool()};
  if (!workspace.empty()) {
    const int64_t bytes = static_cast<int64_t>(workspace.size());
    context.workspace = {translator.Address(workspace.data(), bytes, "the workspace"),
                         workspace.size()};
  }
  if (kernel.plan != nullptr) {
    const int64_t bytes = kernel.plan->bytes(
        {.inputs = in, .outputs = out, .attributes = attributes, .batch = step ? &*step : nullptr});
    if (bytes > 0) context.plan = translator.Address(plan, bytes, "the plan");
  }
  PAGEMILL_RETURN_IF_ERROR(translator.status());
  kernel.run(
      {.inputs = in, .outputs = out, .attributes = attributes, .batch = step ? &*step : nullptr},
      context);
  return OkStatus();
}

template <size_t kOp>
struct Enqueued {
  static const OpDefinition& op() { return CpuOps()[kOp]; }

  static bool Supports(const device::Capabilities&, const OpCall& call) {
    return PlainKernel(op(), call) != nullptr;
  }
  static int64_t WorkspaceBytes(const OpCall& call, int32_t) {
    const Kernel& kernel = *PlainKernel(op(), call);
    return kernel.workspace_bytes == nullptr ? 0 : kernel.workspace_bytes(call, /*num_threads=*/1);
  }
  static void Run(const OpCall& call, KernelContext& context) {
    const Launch launch(*PlainKernel(op(), call), call, context);
    static_cast<TestStream&>(*context.stream).Enqueue([launch](TestWorker& worker) {
      return launch.Run(worker);
    });
  }
  static int64_t PlanBytes(const OpCall& call) {
    const Kernel& kernel = *PlainKernel(op(), call);
    return kernel.plan == nullptr ? 0 : kernel.plan->bytes(call);
  }
  static void MakePlan(const OpCall& call, std::span<std::byte> plan) {
    const Kernel& kernel = *PlainKernel(op(), call);
    if (kernel.plan != nullptr) kernel.plan->make(call, plan);
  }
  static Kernel Row() {
    static constexpr BatchPlan kPlan = {.bytes = PlanBytes, .make = MakePlan};
    const bool plans = std::any_of(op().kernels.begin(), op().kernels.end(),
                                   [](const Kernel& kernel) { return kernel.plan != nullptr; });
    return {.op = op().op,
            .name = "enqueued",
            .supports = Supports,
            .run = Run,
            .workspace_bytes = WorkspaceBytes,
            .plan = plans ? &kPlan : nullptr};
  }
};

template <size_t... kOps>
constexpr auto RowFunctions(std::index_sequence<kOps...>) {
  return std::array{&Enqueued<kOps>::Row...};
}

struct Table {
  Table() {
    constexpr auto kKernels = RowFunctions(std::make_index_sequence<kMaxOps>());
    const std::span<const OpDefinition> ops = CpuOps();
    PAGEMILL_CHECK(ops.size() <= kMaxOps);
    kernels.reserve(ops.size());  // definitions point into it
    for (size_t i = 0; i < ops.size(); ++i) {
      kernels.push_back(kKernels[i]());
      definitions.push_back({.op = ops[i].op,
                             .check = ops[i].check,
                             .kernels = std::span(&kernels.back(), 1),
                             .may_alias = ops[i].may_alias,
                             .traits = ops[i].traits});
    }
  }
  std::vector<Kernel> kernels;
  std::vector<OpDefinition> definitions;
};

}  // namespace

std::span<const OpDefinition> TestDeviceOps() {
  static const Table table;
  return table.definitions;
}

}  // namespace pagemill::ops::testing
