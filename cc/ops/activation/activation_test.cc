#include "cc/ops/activation/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(Activation, Conformance) {
  CheckActivationConformance(ActivationOp(), device::DetectCapabilities());
}

// Infinities and NaN follow the formulas and do not affect neighbouring elements.
TEST(Activation, SpecialValues) {
  const device::Capabilities caps = device::DetectCapabilities();
  device::ThreadPool pool({.num_threads = 1});
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {inf, NAN, 100, -100, 0, 1e30f, -1e30f, 2};
  conformance::TestTensor x(DType::kF32, {1, 8}), y(DType::kF32, {1, 8});
  x.Set(values);
  for (int32_t kind = 0; kind < kNumActivationKinds; ++kind) {
    Attributes attributes;
    attributes.Set("kind", kind);
    const TensorView inputs[] = {x.view()}, outputs[] = {y.view()};
    const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
    for (const Kernel* kernel : conformance::SupportedKernels(ActivationOp(), caps, call)) {
      y.Poison();
      conformance::RunKernel(*kernel, call, pool);
      const std::vector<float> result = y.ToFloat();
      const auto function = static_cast<ActivationKind>(kind);
      const bool bounded =
          function == ActivationKind::kTanh || function == ActivationKind::kSigmoid;
      const float top = bounded ? 1 : inf;
      EXPECT_EQ(result[0], top) << kind << " " << kernel->name;
      EXPECT_TRUE(std::isnan(result[1])) << kind << " " << kernel->name;
      // ln 2 is rounded.
      const double bound = function == ActivationKind::kSoftplus ? 1e-6 : 0;
      EXPECT_NEAR(result[4], ActivateReference(function, 0), bound) << kind << " " << kernel->name;
      for (int i : {2, 3, 5, 6, 7}) {
        const double expected = ActivateReference(function, values[i]);
        if (expected > std::numeric_limits<float>::max()) {  // a square
          EXPECT_EQ(result[i], inf) << kind << " " << kernel->name;
          continue;
        }
        EXPECT_NEAR(result[i], expected, 1e-6 * std::fmax(1, std::fabs(expected)))
            << kind << " " << kernel->name << " " << values[i];
      }
    }
  }
}

}  // namespace
}  // namespace pagemill::ops
