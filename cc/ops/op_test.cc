#include "cc/ops/op.h"

#include <gtest/gtest.h>

namespace pagemill::ops {
namespace {

bool Always(const device::Capabilities&, const OpCall&) { return true; }
bool NeedsAvx2(const device::Capabilities& caps, const OpCall&) { return caps.avx2; }
bool Never(const device::Capabilities&, const OpCall&) { return false; }
void DoNothing(const OpCall&, KernelContext&) {}

constexpr KernelRow kRows[] = {
    {"twist", "reference", 0, Always, DoNothing},
    {"twist", "zeta", 20, NeedsAvx2, DoNothing},
    {"twist", "alpha", 20, NeedsAvx2, DoNothing},
    {"twist", "best", 30, Never, DoNothing},
};
constexpr OpDefinition kOps[] = {{"twist", nullptr, kRows}};

TEST(FindOp, FindsByNameOrSaysWhatIsMissing) {
  const StatusOr<const OpDefinition*> found = FindOp(kOps, "twist");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(*found, &kOps[0]);
  const StatusOr<const OpDefinition*> missing = FindOp(kOps, "shout");
  EXPECT_EQ(missing.status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(missing.status().message().find("'shout'"), std::string::npos);
}

TEST(ChooseKernel, TakesTheHighestSupportedPriorityThenTheName) {
  device::Capabilities caps;
  EXPECT_EQ((*ChooseKernel(kOps[0], caps, {}))->name, "reference");
  caps.avx2 = true;
  EXPECT_EQ((*ChooseKernel(kOps[0], caps, {}))->name, "alpha");
}

TEST(ChooseKernel, CanBeRestrictedToOneRow) {
  device::Capabilities caps;
  caps.avx2 = true;
  EXPECT_EQ((*ChooseKernel(kOps[0], caps, {}, "zeta"))->name, "zeta");
  EXPECT_EQ((*ChooseKernel(kOps[0], caps, {}, "reference"))->name, "reference");
  EXPECT_EQ(ChooseKernel(kOps[0], caps, {}, "best").status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(ChooseKernel(kOps[0], caps, {}, "none").status().code(), StatusCode::kUnimplemented);
}

TEST(Attributes, FallBackWhenMissing) {
  Attributes attributes;
  attributes.Set("window", 4096);
  attributes.Set("scale", 0.125);
  EXPECT_EQ(attributes.GetInt("window", 0), 4096);
  EXPECT_EQ(attributes.Get("scale", 1.0), 0.125);
  EXPECT_EQ(attributes.Get("soft_cap", 30.0), 30.0);
}

}  // namespace
}  // namespace pagemill::ops
