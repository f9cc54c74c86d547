#include "cc/ops/rowwise_conformance.h"

#include <cstring>

#include "cc/ops/act_conformance.h"

namespace pagemill::ops::conformance {
namespace {

constexpr TestTensorOptions kOdd{.misalign_bytes = 4, .row_padding_bytes = 4};

TensorView Slice(TensorView view, int64_t first, int64_t count) {
  view.data = view.Row<std::byte>(first);
  view.shape[0] = count;
  return view;
}

// A call over rows [first, first + count) of the case.
struct SlicedCall {
  SlicedCall(const RowCase& c, int64_t first, int64_t count) {
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const TensorView& view = c.inputs[i].view();
      inputs.push_back(c.input_has_rows[i] ? Slice(view, first, count) : view);
    }
    for (const TestTensor& output : c.outputs) {
      outputs.push_back(Slice(output.view(), first, count));
    }
    call = {.inputs = inputs, .outputs = outputs, .attributes = &c.attributes};
  }
  SlicedCall(const SlicedCall&) = delete;

  std::vector<TensorView> inputs;
  std::vector<TensorView> outputs;
  OpCall call;
};

std::vector<std::vector<uint8_t>> OutputBytes(const RowCase& c) {
  std::vector<std::vector<uint8_t>> bytes;
  for (const TestTensor& output : c.outputs) bytes.push_back(output.Bytes());
  return bytes;
}

void PoisonOutputs(RowCase& c) {
  for (TestTensor& output : c.outputs) output.Poison();
}

void ExpectGuards(const RowCase& c, const Kernel& kernel) {
  for (const TestTensor& input : c.inputs) EXPECT_TRUE(input.GuardsIntact()) << kernel.name;
  for (const TestTensor& output : c.outputs) EXPECT_TRUE(output.GuardsIntact()) << kernel.name;
}

void CheckAliases(RowCase& c, const Kernel& kernel,
                  const std::vector<std::vector<uint8_t>>& expected) {
  device::ThreadPool pool({.num_threads = 1});
  const int64_t rows = c.outputs[0].view().shape[0];
  for (const AliasRule& rule : c.op.may_alias) {
    PoisonOutputs(c);
    SlicedCall whole(c, 0, rows);
    const TensorView& input = whole.inputs[rule.input];
    const TensorView& output = whole.outputs[rule.output];
    const size_t row_bytes = static_cast<size_t>(RowBytes(output.dtype, output.RowElements()));
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(output.Row<std::byte>(i), input.Row<std::byte>(i), row_bytes);
    }
    whole.inputs[rule.input] = output;
    RunKernel(kernel, whole.call, pool);
    EXPECT_TRUE(OutputBytes(c) == expected)
        << kernel.name << ": other bits when output " << int{rule.output} << " shares input "
        << int{rule.input};
  }
}

void CheckKernel(RowCase& c, const device::Capabilities& caps, const Kernel& kernel,
                 const std::vector<std::vector<float>>& reference) {
  const int64_t rows = c.outputs[0].view().shape[0];
  std::vector<std::vector<uint8_t>> expected;
  for (int32_t threads : ThreadCounts(caps)) {
    device::ThreadPool pool({.num_threads = threads});
    PoisonOutputs(c);
    RunKernel(kernel, SlicedCall(c, 0, rows).call, pool);
    ExpectGuards(c, kernel);
    for (size_t i = 0; i < c.outputs.size(); ++i) {
      EXPECT_TRUE(AllClose(c.outputs[i].ToFloat(), reference[i], c.tolerance))
          << c.op.op << " " << kernel.name << " output " << i;
    }
    if (threads == 1) expected = OutputBytes(c);
    EXPECT_TRUE(OutputBytes(c) == expected) << kernel.name << " with " << threads << " threads";
  }
  device::ThreadPool pool({.num_threads = 1});
  PoisonOutputs(c);
  for (int64_t i = 0; i < rows; ++i) RunKernel(kernel, SlicedCall(c, i, 1).call, pool);
  EXPECT_TRUE(OutputBytes(c) == expected) << kernel.name << ": other bits for a row alone";
  PoisonOutputs(c);
  const std::vector<std::vector<uint8_t>> untouched = OutputBytes(c);
  RunKernel(kernel, SlicedCall(c, 0, 0).call, pool);
  EXPECT_TRUE(OutputBytes(c) == untouched) << kernel.name << ": wrote without rows";
  CheckAliases(c, kernel, expected);
}

}  // namespace

TestTensor& RowCase::AddRows(std::initializer_list<int64_t> dims) {
  act_inputs |= 1u << inputs.size();
  input_has_rows.push_back(true);
  inputs.emplace_back(DType::kF32, dims, kOdd);
  inputs.back().FillUniform(random, -2, 2);
  return inputs.back();
}

TestTensor& RowCase::AddShared(std::initializer_list<int64_t> dims) {
  input_has_rows.push_back(false);
  inputs.emplace_back(DType::kF32, dims, TestTensorOptions{.misalign_bytes = 4});
  inputs.back().FillUniform(random, -2, 2);
  return inputs.back();
}

void RowCase::AddOutput(std::initializer_list<int64_t> dims) {
  outputs.emplace_back(DType::kF32, dims, kOdd);
}

void CheckRowCase(RowCase& c, const device::Capabilities& caps) {
  const SlicedCall whole(c, 0, c.outputs[0].view().shape[0]);
  const Status status = c.op.check(whole.call);
  ASSERT_TRUE(status.ok()) << status.ToString();
  device::ThreadPool pool({.num_threads = 1});
  RunKernel(ReferenceKernel(c.op), whole.call, pool);
  std::vector<std::vector<float>> reference;
  for (const TestTensor& output : c.outputs) reference.push_back(output.ToFloat());
  for (const Kernel* kernel : SupportedKernels(c.op, caps, whole.call)) {
    CheckKernel(c, caps, *kernel, reference);
  }
  if (c.act_inputs == 0) return;
  CheckActTypes({.op = c.op,
                 .caps = caps,
                 .call = whole.call,
                 .act_inputs = c.act_inputs,
                 .tolerance = c.tolerance});
}

void CheckBits(const OpDefinition& op, const device::Capabilities& caps, const OpCall& call,
               TestTensor& y, const std::vector<float>& expected) {
  ASSERT_TRUE(op.check(call).ok());
  for (int32_t threads : ThreadCounts(caps)) {
    device::ThreadPool pool({.num_threads = threads});
    for (const Kernel* kernel : SupportedKernels(op, caps, call)) {
      y.Poison();
      RunKernel(*kernel, call, pool);
      EXPECT_TRUE(BitEqual(y.ToFloat(), expected)) << kernel->name;
      EXPECT_TRUE(y.GuardsIntact()) << kernel->name;
    }
  }
}

}  // namespace pagemill::ops::conformance
