#include "cuda/ops/kernels.h"

#include <cstdint>
#include <string>
#include <utility>

#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/moe_combine/moe_combine.h"
#include "cuda/ops/testing/gpu_conformance.h"
#include "cuda/ops/testing/reference_results.h"

namespace pagemill::gpu {
namespace {

TEST_P(GpuConformance, MoeCombine) {
  ops::CheckMoeCombineConformance(OnGpu<MoeCombineKernels>(ops::MoeCombineOp()), GpuCapabilities());
}

// Rows that are loaded in vectors, short and longer than a block, with more choices than are under
// way, and with one row for all choices: within two roundings of the reference.
TEST_P(GpuConformance, MoeCombineOfAlignedRows) {
  using ops::conformance::TestTensor;
  const ops::OpDefinition op = OnGpu<MoeCombineKernels>(ops::MoeCombineOp());
  ops::conformance::Random random(7);
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::kF32, 1e-6}, {DType::kBF16, 0x1p-7}, {DType::kF16, 0x1p-10}}) {
    for (const int64_t size : {8, 1000, 2048}) {
      for (const int64_t choices : {1, 4, 10}) {
        for (const bool shared : {false, true}) {
          SCOPED_TRACE(std::string(Info(dtype).name) + ", " + std::to_string(choices) +
                       " choices of " + std::to_string(size));
          TestTensor weights(DType::kF32, {3, choices}), y(dtype, {3, size});
          TestTensor x = shared ? TestTensor(dtype, {3, size})
                                : TestTensor(dtype, {3, choices, size});
          x.FillUniform(random, 1, 2);
          weights.FillUniform(random, 0, 1);
          const TensorView inputs[] = {x.view(), weights.view()}, outputs[] = {y.view()};
          const ops::Attributes attributes;
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
