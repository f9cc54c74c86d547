#include "cuda/ops/kernels.h"

#include <cstdint>
#include <string>
#include <utility>

#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rms_norm/rms_norm.h"
#include "cuda/ops/testing/aligned_rows.h"
#include "cuda/ops/testing/gpu_conformance.h"
#include "cuda/ops/testing/reference_results.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, RmsNorm) {
  ops::CheckRmsNormConformance(OnGpu<RmsNormKernels>(ops::RmsNormOp()), GpuCapabilities());
}

TEST_P(GpuConformance, RmsNormOfAlignedRows) {
  RowOperands operands = {.inputs = 1, .weights = true};
  operands.attributes.Set("eps", 1e-5);
  CheckAlignedRows(OnGpu<RmsNormKernels>(ops::RmsNormOp()), operands);
}

// Heads that lanes of a warp have, and longer ones, with weights of all or of each: within two
// roundings of the reference.
TEST_P(GpuConformance, RmsNormOfAlignedHeads) {
  using ops::conformance::TestTensor;
  const ops::OpDefinition op = OnGpu<RmsNormKernels>(ops::RmsNormOp());
  ops::conformance::Random random(11);
  ops::Attributes attributes;
  attributes.Set("eps", 1e-5);
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::kF32, 1e-5}, {DType::kBF16, 0x1p-7}, {DType::kF16, 0x1p-10}}) {
    for (const int64_t size : {8, 96, 128, 256, 512}) {
      for (const int64_t heads : {1, 4, 35}) {
        for (const int64_t weighted : {int64_t{1}, heads}) {
          SCOPED_TRACE(std::string(Info(dtype).name) + ", " + std::to_string(heads) +
                       " heads of " + std::to_string(size));
          TestTensor x(dtype, {3, heads, size}), w(DType::kF32, {weighted * size});
          TestTensor y(dtype, {3, heads, size});
          x.FillUniform(random, -2, 2);
          w.FillUniform(random, -2, 2);
          const TensorView inputs[] = {x.view(), w.view()}, outputs[] = {y.view()};
          const ops::OpCall call = {
              .inputs = inputs, .outputs = outputs, .attributes = &attributes};
          ExpectReferenceResults(op, call, y, tolerance);
        }
      }
    }
  }
}

}  // namespace
}  // namespace pagemill::gpu
