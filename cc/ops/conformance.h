// File: cc/ops/conformance.h
// Test support for the conformance checks of all ops: reproducible random operands of every dtype,
// tensors between guard bytes, poisoned outputs and workspace, and comparisons that report the
// place and size of a difference. Test code only (uses googletest); independent of the back end.
//
//   Random random(1);
//   TestTensor x(DType::kF32, {3, 65}, {.misalign_bytes = 4}), y(DType::kF32, {3, 65});
//   x.FillUniform(random, -1, 1);
//   const TensorView inputs[] = {x.view()}, outputs[] = {y.view()};
//   const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
//   for (const Kernel* kernel : SupportedKernels(ReluOp(), caps, call)) {
//     y.Poison();
//     RunKernel(*kernel, call, pool);                     // checks the guards of the workspace
//     EXPECT_TRUE(y.GuardsIntact()) << kernel->name;
//     EXPECT_TRUE(AllClose(y.ToFloat(), expected, {.abs = 1e-6})) << kernel->name;
//   }
//
// Thread safety: none; every test has its own.
#ifndef PAGEMILL_CC_OPS_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/op.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::ops::conformance {

// splitmix64: the same sequence on every CPU and standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    // Constants of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators).
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Uniform in [low, high].
  int64_t Int(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  // Uniform in [low, high).
  float Uniform(float low, float high) {
    return low + (high - low) * (static_cast<float>(Next() >> 40) * 0x1p-24f);
  }
  float Normal();  // mean 0, variance 1 (sum of uniforms: |value| <= 6)

 private:
  uint64_t state_;
};

struct TestTensorOptions {
  int64_t misalign_bytes = 0;     // distance of the data from a 64-byte boundary
  int64_t row_padding_bytes = 0;  // guard bytes between consecutive rows
};

// A tensor that owns its memory, surrounded by guard bytes (between its rows too, when padded).
// Starts poisoned.
class TestTensor {
 public:
  TestTensor(DType dtype, std::initializer_list<int64_t> dims,
             const TestTensorOptions& options = {})
      : TestTensor(dtype, std::span(dims.begin(), dims.size()), options) {}
  TestTensor(DType dtype, std::span<const int64_t> dims, const TestTensorOptions& options = {});
  TestTensor(TestTensor&&) = default;

  const TensorView& view() const { return view_; }

  // Floats become NaN, i32 INT32_MIN, scales of blocks NaN, so that unwritten elements are
  // detected.
  void Poison();
  // f32, bf16, f16, f8_e4m3: uniform in [low, high). i32, i8, u8: uniform integers in [low, high].
  // Block formats: random bytes under scales such that values span about [low, high] around their
  // mean; both signs of the scale occur.
  void FillUniform(Random& random, float low, float high);
  // f32, bf16, f16, f8_e4m3 and i32: the elements in row-major order, converted.
  void Set(std::span<const float> values);
  void SetInt(std::span<const int32_t> values);

  // Elements in row-major order as float (f32, bf16, f16, f8_e4m3, i32, i8, u8).
  std::vector<float> ToFloat() const;
  // The bytes of all rows without padding, for bit-exact comparisons; all NaNs are one.
  std::vector<uint8_t> Bytes() const;
  bool GuardsIntact() const;

 private:
  int64_t row_bytes_ = 0;
  std::vector<uint8_t> memory_;
  TensorView view_;
};

// The kernels of `op` that can run `call` on a machine with `caps`, in table order.
std::vector<const Kernel*> SupportedKernels(const OpDefinition& op,
                                            const device::Capabilities& caps, const OpCall& call);

// Numbers of threads that checks run kernels with, the first of which is 1. Only 1 for kernels of
// devices, which do not use the host's threads, and where the CPU is emulated.
std::vector<int32_t> ThreadCounts(const device::Capabilities& caps);

// The first and the last of several values where the CPU is emulated; elsewhere all of them.
std::vector<int32_t> FewIfEmulated(std::initializer_list<int32_t> values);

// The kernel named "reference"; aborts if the op has none.
const Kernel& ReferenceKernel(const OpDefinition& op);

// A call as the kernel requires it: weights that it packs are replaced by packed copies between
// guards. The original call must outlive it.
class PackedCall {
 public:
  PackedCall(const Kernel& kernel, const OpCall& call, device::ThreadPool& pool);
  PackedCall(const PackedCall&) = delete;
  const OpCall& call() const { return call_; }

 private:
  std::vector<TensorView> inputs_;
  std::vector<std::vector<uint8_t>> copies_;
  OpCall call_;
};

// Packs weights if the kernel requires it, then runs it with exactly workspace_bytes() of
// NaN-poisoned, guarded workspace, and expects the guards to be intact afterwards.
void RunKernel(const Kernel& kernel, const OpCall& stored, device::ThreadPool& pool);

// An element passes when |actual - expected| <= abs + rel * |expected|. NaN passes against NaN
// only, infinity against the same infinity only.
struct Tolerance {
  double abs = 0;
  double rel = 0;
};

// A failure names the worst element, both values, and the largest excess.
::testing::AssertionResult AllClose(std::span<const float> actual, std::span<const float> expected,
                                    const Tolerance& tolerance);

// Equality of bits: NaN payloads and the sign of zero count.
::testing::AssertionResult BitEqual(std::span<const float> actual, std::span<const float> expected);

// sum((actual - expected)^2) / sum(expected^2), in double; 0 for two empty or zero spans.
double NormalizedSquaredError(std::span<const float> actual, std::span<const float> expected);

}  // namespace pagemill::ops::conformance

#endif  // PAGEMILL_CC_OPS_CONFORMANCE_H_
