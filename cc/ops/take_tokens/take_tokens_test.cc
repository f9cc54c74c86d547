#include "cc/ops/take_tokens/take_tokens.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(TakeTokens, Conformance) {
  CheckTakeTokensConformance(TakeTokensOp(), device::DetectCapabilities());
}

}  // namespace
}  // namespace pagemill::ops
