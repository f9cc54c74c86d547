#include "cc/ops/layer_norm/layer_norm.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(LayerNorm, Conformance) {
  CheckLayerNormConformance(LayerNormOp(), device::DetectCapabilities());
}

}  // namespace
}  // namespace pagemill::ops
