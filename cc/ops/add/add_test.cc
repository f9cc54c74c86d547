#include "cc/ops/add/add.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(Add, Conformance) { CheckAddConformance(AddOp(), device::DetectCapabilities()); }

}  // namespace
}  // namespace pagemill::ops
