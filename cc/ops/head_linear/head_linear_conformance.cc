// What every kernel of `head_linear` has to pass: for each type of weights and both orientations:
// results close to the reference, matrices that lie apart, odd sizes, padded and misaligned rows,
// and the same bits with 1 and 3 threads and however the rows are divided into calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cc/ops/act_conformance.h"
#include "cc/ops/block_format/block_format.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/quantized/random_packed.h"

namespace pagemill::ops {
namespace {

using conformance::PackedKind;
using conformance::Random;
using conformance::RandomPacked;
using conformance::TestTensor;

struct Shape {
  int64_t rows, heads, k, m;
};

void CheckShape(const OpDefinition& op, const device::Capabilities& caps, DType dtype,
                const Shape& shape, bool transposed) {
  const int64_t block = Info(dtype).block_elements;
  if ((transposed ? shape.m : shape.k) % block != 0) return;
  SCOPED_TRACE(std::string(Info(dtype).name) + (transposed ? " transposed" : "") + " k " +
               std::to_string(shape.k) + " m " + std::to_string(shape.m));
  Random random(3);
  TestTensor x(DType::kF32, {shape.rows, shape.heads, shape.k},
               {.misalign_bytes = 4, .row_padding_bytes = 8});
  TestTensor w(dtype, {shape.heads, transposed ? shape.k : shape.m, transposed ? shape.m : shape.k},
               {.row_padding_bytes = 2 * Info(dtype).block_bytes});
  TestTensor y(DType::kF32, {shape.rows, shape.heads, shape.m},
               {.misalign_bytes = 8, .row_padding_bytes = 4});
  x.FillUniform(random, -1, 1);
  w.FillUniform(random, -1, 1);
  Attributes attributes;
  if (transposed) attributes.Set("transposed", 1);
  const TensorView inputs[] = {x.view(), w.view()}, outputs[] = {y.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  device::ThreadPool pool({.num_threads = 2});
  conformance::RunKernel(conformance::ReferenceKernel(op), call, pool);
  const std::vector<float> reference = y.ToFloat();
  // The contract's bounds with |x| <= 1 and, for values of blocks, |w| <= 4.
  const double k = static_cast<double>(shape.k);
  const conformance::Tolerance tolerance{.abs = (k + 8) * 0x1p-24 * 4 * k};
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    y.Poison();
    conformance::RunKernel(*kernel, call, pool);
    EXPECT_TRUE(conformance::AllClose(y.ToFloat(), reference, tolerance)) << kernel->name;
    EXPECT_TRUE(x.GuardsIntact() && w.GuardsIntact() && y.GuardsIntact()) << kernel->name;
  }
  conformance::CheckActTypes(
      {.op = op, .caps = caps, .call = call, .act_inputs = 0b1, .tolerance = tolerance});
  // The result in f32, whatever the type of x.
  conformance::CheckActTypes({.op = op,
                              .caps = caps,
                              .call = call,
                              .act_inputs = 0b1,
                              .act_outputs = 0,
                              .tolerance = tolerance});
}

// Packed integers, for kernels that read them as they are stored: a stack, and rows of one matrix.
void CheckPacked(const OpDefinition& op, const device::Capabilities& caps, const PackedKind& kind,
                 bool transposed) {
  constexpr int64_t kHeads = 3, kRows = 11, kColumns = 96;
  Random random(5);
  for (const bool of_one : {false, true}) {
    RandomPacked packed(kind, of_one ? conformance::kNoStack : kHeads, of_one ? 48 : 16, kColumns,
                        random);
    const TensorView w = of_one ? packed.StackFrom(5, 16, kHeads, kRows)
                                : packed.PartFrom(2, 0, kRows, kColumns);
    const int64_t k = transposed ? kRows : kColumns, m = transposed ? kColumns : kRows;
    TestTensor x(DType::kF32, {4, kHeads, k}), y(DType::kF32, {4, kHeads, m});
    x.FillUniform(random, -1, 1);
    Attributes attributes;
    if (transposed) attributes.Set("transposed", 1);
    const TensorView inputs[] = {x.view(), w}, outputs[] = {y.view()};
    const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
    ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
    device::ThreadPool pool({.num_threads = 2});
    conformance::RunKernel(conformance::ReferenceKernel(op), call, pool);
    const std::vector<float> reference = y.ToFloat();
    // The contract's bounds with |x| <= 1 and |w| <= 2.56.
    const conformance::Tolerance tolerance{
        .abs = static_cast<double>(k + 8) * 0x1p-24 * 2.56 * static_cast<double>(k)};
    for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
      if (kernel->packing != nullptr) continue;
      y.Poison();
      conformance::RunKernel(*kernel, call, pool);
      EXPECT_TRUE(conformance::AllClose(y.ToFloat(), reference, tolerance))
          << kernel->name << " " << NameOf(kind);
    }
  }
}

// Rows [begin, end) of `view`.
TensorView Slice(TensorView view, int64_t begin, int64_t end) {
  view.data = view.Row<void>(begin);
  view.shape[0] = end - begin;
  return view;
}

// The whole call with 1 and 3 threads, single rows and random pieces have the same bits.
void CheckPieces(const OpDefinition& op, const device::Capabilities& caps, DType dtype,
                 bool transposed) {
  constexpr int64_t kRows = 37;
  Random random(4);
  TestTensor x(DType::kF32, {kRows, 2, 32}), w(dtype, {2, 32, 32}), y(DType::kF32, {kRows, 2, 32});
  x.FillUniform(random, -1, 1);
  w.FillUniform(random, -1, 1);
  Attributes attributes;
  attributes.Set("transposed", transposed ? 1 : 0);
  const auto run = [&](const Kernel& kernel, int64_t begin, int64_t end, int32_t threads) {
    const TensorView inputs[] = {Slice(x.view(), begin, end), w.view()};
    const TensorView outputs[] = {Slice(y.view(), begin, end)};
    device::ThreadPool pool({.num_threads = threads});
    conformance::RunKernel(kernel,
                           {.inputs = inputs, .outputs = outputs, .attributes = &attributes}, pool);
  };
  const TensorView inputs[] = {x.view(), w.view()}, outputs[] = {y.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    y.Poison();
    for (int64_t n = 0; n < kRows; ++n) run(*kernel, n, n + 1, 1);
    const std::vector<float> expected = y.ToFloat();
    for (int32_t threads : conformance::ThreadCounts(caps)) {
      y.Poison();
      run(*kernel, 0, kRows, threads);
      EXPECT_TRUE(conformance::BitEqual(y.ToFloat(), expected)) << kernel->name << " " << threads;
    }
    y.Poison();
    for (int64_t begin = 0, end = 0; begin < kRows; begin = end) {
      end = std::min(kRows, begin + random.Int(1, 9));
      run(*kernel, begin, end, 1);
    }
    EXPECT_TRUE(conformance::BitEqual(y.ToFloat(), expected)) << kernel->name << " in pieces";
  }
}

}  // namespace

void CheckHeadLinearConformance(const OpDefinition& op, const device::Capabilities& caps) {
  const Shape shapes[] = {{1, 3, 64, 512}, {7, 3, 32, 96},  {3, 2, 256, 256}, {70, 2, 64, 33},
                          {9, 2, 75, 1},   {5, 4, 19, 300}, {0, 2, 32, 32}};
  for (DType dtype : kWeightDTypes) {
    for (bool transposed : {false, true}) {
      for (const Shape& shape : shapes) CheckShape(op, caps, dtype, shape, transposed);
    }
  }
  for (bool transposed : {false, true}) {
    for (const PackedKind& kind : conformance::kPackedKinds) {
      CheckPacked(op, caps, kind, transposed);
    }
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0}) {
      CheckPieces(op, caps, dtype, transposed);
    }
  }
}

}  // namespace pagemill::ops
