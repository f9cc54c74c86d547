#include "cc/ops/act_conformance.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace pagemill::ops::conformance {
namespace {

using Bytes = std::vector<std::vector<uint8_t>>;

// Data one element past a 64-byte boundary, with one element of padding between rows.
TestTensorOptions Odd(DType dtype) {
  const int64_t bytes = Info(dtype).block_bytes;
  return {.misalign_bytes = bytes, .row_padding_bytes = bytes};
}

TestTensor TensorLike(const TensorView& view, DType dtype, const TestTensorOptions& options) {
  return TestTensor(dtype, std::span(view.shape).first(static_cast<size_t>(view.rank)), options);
}

// The case with its activations converted to one type.
struct Variant {
  // Activations are those of the case, rounded to `dtype`.
  Variant(const ActCase& c, DType dtype) : inputs(c.call.inputs.begin(), c.call.inputs.end()) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if ((c.act_inputs >> i & 1) == 0) continue;
      activations.push_back(TensorLike(inputs[i], dtype, Odd(dtype)));
      activations.back().Set(FloatsOf(inputs[i]));
      inputs[i] = activations.back().view();
    }
    for (size_t i = 0; i < c.call.outputs.size(); ++i) {
      const TensorView& output = c.call.outputs[i];
      const DType type = (c.act_outputs >> i & 1) != 0 ? dtype : output.dtype;
      results.push_back(TensorLike(output, type, Odd(type)));
      outputs.push_back(results.back().view());
    }
    call = c.call;
    call.inputs = inputs;
    call.outputs = outputs;
  }
  Variant(const Variant&) = delete;

  static std::vector<float> FloatsOf(const TensorView& view) {
    TestTensor dense = TensorLike(view, DType::kF32, {});
    const int64_t bytes = RowBytes(DType::kF32, view.RowElements());
    for (int64_t i = 0; i < view.shape[0]; ++i) {
      std::memcpy(dense.view().Row<void>(i), view.Row<const void>(i), static_cast<size_t>(bytes));
    }
    return dense.ToFloat();
  }

  // The outputs and the cache after the kernel has run.
  Bytes Run(const Kernel& kernel, device::ThreadPool& pool, TestTensor* cache) {
    if (cache != nullptr) cache->Poison();
    RunKernel(kernel, call, pool);
    Bytes bytes;
    for (const TestTensor& result : results) {
      EXPECT_TRUE(result.GuardsIntact()) << kernel.name;
      bytes.push_back(result.Bytes());
    }
    for (const TestTensor& activation : activations) EXPECT_TRUE(activation.GuardsIntact());
    if (cache != nullptr) bytes.push_back(cache->Bytes());
    return bytes;
  }

  void Poison() {
    for (TestTensor& result : results) result.Poison();
  }

  std::vector<TestTensor> activations, results;
  std::vector<TensorView> inputs, outputs;
  OpCall call;
};

std::vector<float> Rounded(const std::vector<float>& values, const TestTensor& like) {
  TestTensor tensor = TensorLike(like.view(), like.view().dtype, {});
  tensor.Set(values);
  return tensor.ToFloat();
}

// Whether each element is the rounding of a value within `tolerance` of the expected one.
::testing::AssertionResult RoundsFromClose(const TestTensor& actual,
                                           const std::vector<float>& expected,
                                           const Tolerance& tolerance) {
  std::vector<float> low, high;
  for (float value : expected) {
    const bool bounded = std::isfinite(value);  // else it is met exactly
    const double error = bounded ? tolerance.abs + tolerance.rel * std::abs(double{value}) : 0;
    low.push_back(static_cast<float>(value - error));
    high.push_back(static_cast<float>(value + error));
  }
  low = Rounded(low, actual);
  high = Rounded(high, actual);
  const std::vector<float> values = actual.ToFloat();
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= low[i] && values[i] <= high[i]) continue;
    if (std::isnan(values[i]) && std::isnan(expected[i])) continue;
    return ::testing::AssertionFailure() << "element " << i << " is " << values[i] << ", not from "
                                         << low[i] << " to " << high[i];
  }
  return ::testing::AssertionSuccess();
}

// What a kernel has to write: exactly, and in f32.
struct Expectation {
  Bytes exact;
  std::vector<std::vector<float>> wide = {};  // of each output
  std::vector<float> cache = {};
};

bool IsExact(const Tolerance& tolerance) { return tolerance.abs == 0 && tolerance.rel == 0; }

// Whether the last run of `kernel`, whose results are `bytes`, wrote what it has to.
::testing::AssertionResult Fulfils(const ActCase& c, const Kernel& kernel, const Variant& narrow,
                                   const Bytes& bytes, const Expectation& expected) {
  if (IsExact(c.tolerance) || kernel.name == "reference") {
    if (bytes == expected.exact) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "other bits";
  }
  for (size_t i = 0; i < narrow.results.size(); ++i) {
    const auto close = RoundsFromClose(narrow.results[i], expected.wide[i], c.tolerance);
    if (!close) return ::testing::AssertionFailure() << "output " << i << ": " << close.message();
  }
  if (c.cache == nullptr || bytes.back() == expected.exact.back()) {
    return ::testing::AssertionSuccess();
  }
  if (IsExact(c.cache_tolerance)) return ::testing::AssertionFailure() << "other bits in the cache";
  return RoundsFromClose(*c.cache, expected.cache, c.cache_tolerance) << " of the cache";
}

// The results of the f32 reference on the rounded activations, rounded to `dtype`.
Expectation Expected(const ActCase& c, const Variant& narrow, DType dtype) {
  std::vector<TestTensor> wide;
  std::vector<TensorView> inputs = narrow.inputs;
  for (size_t i = 0, a = 0; i < inputs.size(); ++i) {
    if ((c.act_inputs >> i & 1) == 0) continue;
    wide.push_back(TensorLike(inputs[i], DType::kF32, {}));
    wide.back().Set(narrow.activations[a++].ToFloat());
    inputs[i] = wide.back().view();
  }
  OpCall call = c.call;
  call.inputs = inputs;
  Variant in_f32({.op = c.op, .caps = c.caps, .call = call, .act_outputs = c.act_outputs},
                 DType::kF32);
  device::ThreadPool pool({.num_threads = 1});
  Expectation expected = {.exact = in_f32.Run(ReferenceKernel(c.op), pool, c.cache)};
  for (size_t i = 0; i < in_f32.results.size(); ++i) {
    expected.wide.push_back(in_f32.results[i].ToFloat());
    if ((c.act_outputs >> i & 1) == 0) continue;
    TestTensor rounded = TensorLike(in_f32.results[i].view(), dtype, {});
    rounded.Set(expected.wide.back());
    expected.exact[i] = rounded.Bytes();
  }
  if (c.cache != nullptr && !IsExact(c.cache_tolerance)) expected.cache = c.cache->ToFloat();
  return expected;
}

void CheckMixedTypes(const ActCase& c, const Variant& narrow) {
  OpCall call = narrow.call;
  const auto expect_refusal = [&](const TensorView& changed) {
    EXPECT_EQ(c.op.check(call).code(), StatusCode::kInvalidArgument)
        << "one activation is " << Info(changed.dtype).name;
  };
  const auto other = [](DType dtype) { return dtype == DType::kBF16 ? DType::kF16 : DType::kBF16; };
  std::vector<TensorView> outputs = narrow.outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if ((c.act_outputs >> i & 1) == 0 || c.act_inputs == 0) continue;
    outputs[i].dtype = other(outputs[i].dtype);
    call.outputs = outputs;
    expect_refusal(outputs[i]);
    outputs[i].dtype = other(outputs[i].dtype);
  }
  std::vector<TensorView> inputs = narrow.inputs;
  for (size_t i = 1; i < inputs.size(); ++i) {
    if ((c.act_inputs >> i & 1) == 0) continue;
    inputs[i].dtype = other(inputs[i].dtype);
    call.inputs = inputs;
    expect_refusal(inputs[i]);
    inputs[i].dtype = other(inputs[i].dtype);
  }
}

void CheckAliases(const ActCase& c, Variant& narrow, const Kernel& kernel, const Bytes& expected) {
  device::ThreadPool pool({.num_threads = 1});
  for (const AliasRule& rule : c.op.may_alias) {
    const size_t input = static_cast<size_t>(rule.input);
    if (input >= narrow.inputs.size()) continue;  // of a further output
    narrow.Poison();
    const TensorView kept = narrow.inputs[input];
    const TensorView& output = narrow.outputs[static_cast<size_t>(rule.output)];
    const int64_t bytes = RowBytes(output.dtype, output.RowElements());
    for (int64_t i = 0; i < output.shape[0]; ++i) {
      std::memcpy(output.Row<void>(i), kept.Row<const void>(i), static_cast<size_t>(bytes));
    }
    narrow.inputs[input] = output;
    EXPECT_TRUE(narrow.Run(kernel, pool, c.cache) == expected)
        << kernel.name << ": other bits when output " << int{rule.output} << " shares input "
        << int{rule.input};
    narrow.inputs[input] = kept;
  }
}

}  // namespace

void CheckActTypes(const ActCase& c) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    SCOPED_TRACE("activations in " + std::string(Info(dtype).name));
    Variant narrow(c, dtype);
    const Status status = c.op.check(narrow.call);
    ASSERT_TRUE(status.ok()) << status.ToString();
    CheckMixedTypes(c, narrow);
    const Expectation expected = Expected(c, narrow, dtype);
    const std::vector<const Kernel*> kernels = SupportedKernels(c.op, c.caps, narrow.call);
    EXPECT_FALSE(kernels.empty());
    for (const Kernel* kernel : kernels) {
      Bytes first;
      for (int32_t threads : ThreadCounts(c.caps)) {
        device::ThreadPool pool({.num_threads = threads});
        narrow.Poison();
        const Bytes bytes = narrow.Run(*kernel, pool, c.cache);
        EXPECT_TRUE(Fulfils(c, *kernel, narrow, bytes, expected))
            << kernel->name << " with " << threads << " threads";
        if (threads == 1) first = bytes;
        EXPECT_TRUE(bytes == first) << kernel->name << " with " << threads << " threads";
      }
      CheckAliases(c, narrow, *kernel, first);
    }
  }
}

}  // namespace pagemill::ops::conformance
