#include "cc/ops/gated_activation/gated_activation.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(GatedActivation, Conformance) {
  CheckGatedActivationConformance(GatedActivationOp(), device::DetectCapabilities());
}

}  // namespace
}  // namespace pagemill::ops
