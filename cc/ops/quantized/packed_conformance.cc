// Conformance checks for `linear` with packed integers, for every kernel that reads them as they
// are stored: values within the contract's bounds of the exact product, for whole matrices and parts
// of them. For all kernels, equal bits of a row in any batch.
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/matrix_conformance.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/ops/quantized/random_packed.h"

namespace pagemill::ops {
namespace {

using conformance::kPackedKinds;
using conformance::PackedKind;
using conformance::Random;
using conformance::RandomPacked;
using conformance::TestTensor;

// What the kernel of the call, which has run, is off by at most.
void CheckValues(const OpCall& call, const Kernel& kernel) {
  const TensorView &x = call.inputs[0], &w = call.inputs[1], &y = call.outputs[0];
  const int64_t columns = w.shape[1];
  const double bound = kernel.activations == Precision::kBf16 ? LinearBf16ErrorBound(columns)
                                                              : LinearErrorBound(columns);
  std::vector<float> row(static_cast<size_t>(columns));
  for (int64_t m = 0; m < w.shape[0]; ++m) {
    ReadWeightRow(w, /*matrix=*/0, m, row.data());
    for (int64_t n = 0; n < x.shape[0]; ++n) {
      double sum = call.inputs[2].Data<const float>()[m], magnitude = std::abs(sum);
      for (int64_t k = 0; k < columns; ++k) {
        const double product = double{row[static_cast<size_t>(k)]} * x.Row<const float>(n)[k];
        sum += product;
        magnitude += std::abs(product);
      }
      // Not `>`: NaN must fail.
      ASSERT_TRUE(std::abs(y.Row<const float>(n)[m] - sum) <= bound * magnitude)
          << "y[" << n << ", " << m << "] is " << y.Row<const float>(n)[m] << ", expected " << sum;
    }
  }
}

void CheckWeights(const OpDefinition& op, const device::Capabilities& caps, const TensorView& w,
                  int64_t rows, Random& random) {
  TestTensor x(DType::kF32, {rows, w.shape[1]}, {.misalign_bytes = 4, .row_padding_bytes = 4});
  TestTensor bias(DType::kF32, {w.shape[0]}), y(DType::kF32, {rows, w.shape[0]});
  x.FillUniform(random, -2, 2);
  bias.FillUniform(random, -1, 1);
  const TensorView inputs[] = {x.view(), w, bias.view()}, outputs[] = {y.view()};
  const Attributes attributes;
  const OpCall call{inputs, outputs, &attributes, nullptr};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  device::ThreadPool pool({.num_threads = 2});
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    if (kernel->packing != nullptr) continue;
    SCOPED_TRACE(std::string(kernel->name));
    y.Poison();
    conformance::RunKernel(*kernel, call, pool);
    EXPECT_TRUE(y.GuardsIntact());
    CheckValues(call, *kernel);
  }
  conformance::CheckBatchInvariance(op, caps, call, random);
}

}  // namespace

void CheckPackedConformance(const OpDefinition& op, const device::Capabilities& caps) {
  Random random(11);
  for (const PackedKind& kind : kPackedKinds) {
    SCOPED_TRACE(NameOf(kind));
    RandomPacked small(kind, conformance::kNoStack, /*rows=*/40, /*columns=*/192, random);
    for (int64_t rows : {1, 6}) CheckWeights(op, caps, small.view(), rows, random);
    CheckWeights(op, caps, small.PartFrom(3, 64, 35, 96), 3, random);
    const RandomPacked large(kind, conformance::kNoStack, /*rows=*/8, /*columns=*/1024, random);
    CheckWeights(op, caps, large.view(), 5, random);
  }
}

}  // namespace pagemill::ops
