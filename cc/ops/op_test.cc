#include "cc/ops/op.h"

#include <gtest/gtest.h>

#include "cc/ops/kernel_support.h"

namespace pagemill::ops {
namespace {

bool Never(const device::Capabilities&, const OpCall&) { return false; }
void DoNothing(const OpCall&, KernelContext&) {}

constexpr Kernel kKernels[] = {
    {"twist", "reference", 0, OnEveryCpu, DoNothing},
    {"twist", "zeta", 20, OnAvx2, DoNothing},
    {"twist", "alpha", 20, OnAvx2, DoNothing},
    {"twist", "best", 30, Never, DoNothing},
};
constexpr OpDefinition kOps[] = {{"twist", nullptr, kKernels}};

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
  caps.cpu.avx2 = true;
  EXPECT_EQ((*ChooseKernel(kOps[0], caps, {}))->name, "alpha");
}

TEST(ChooseKernel, CanBeRestrictedToOneKernel) {
  device::Capabilities caps;
  caps.cpu.avx2 = true;
  EXPECT_EQ((*ChooseKernel(kOps[0], caps, {}, {.name = "zeta"}))->name, "zeta");
  EXPECT_EQ((*ChooseKernel(kOps[0], caps, {}, {.name = "reference"}))->name, "reference");
  EXPECT_EQ(ChooseKernel(kOps[0], caps, {}, {.name = "best"}).status().code(),
            StatusCode::kUnimplemented);
  EXPECT_EQ(ChooseKernel(kOps[0], caps, {}, {.name = "none"}).status().code(),
            StatusCode::kUnimplemented);
}

TEST(ChooseKernel, ExcludesKernelsThatRoundActivationsMoreThanAllowed) {
  constexpr Kernel kernels[] = {
      {.op = "twist", .name = "exact", .priority = 1, .supports = OnEveryCpu},
      {.op = "twist",
       .name = "bf16",
       .priority = 2,
       .supports = OnEveryCpu,
       .activations = Precision::kBf16},
      {.op = "twist",
       .name = "int8",
       .priority = 3,
       .supports = OnEveryCpu,
       .activations = Precision::kInt8Block}};
  const OpDefinition op = {"twist", nullptr, kernels};
  EXPECT_EQ((*ChooseKernel(op, {}, {}))->name, "int8");
  constexpr auto name = [](const OpDefinition& op, Precision coarsest) {
    return (*ChooseKernel(op, {}, {}, {.activations = coarsest}))->name;
  };
  EXPECT_EQ(name(op, Precision::kInt8Block), "int8");
  EXPECT_EQ(name(op, Precision::kBf16), "bf16");
  EXPECT_EQ(name(op, Precision::kF32), "exact");
  const KernelLimits unfit = {.name = "int8", .activations = Precision::kBf16};
  EXPECT_FALSE(ChooseKernel(op, {}, {}, unfit).ok());
}

TEST(ChooseKernel, ExcludesKernelsThatVaryWithTheBatch) {
  constexpr Kernel kernels[] = {
      {.op = "twist", .name = "plain", .priority = 1, .supports = OnEveryCpu},
      {.op = "twist",
       .name = "library",
       .priority = 2,
       .supports = OnEveryCpu,
       .varies_with_batch = true}};
  const OpDefinition op = {"twist", nullptr, kernels};
  EXPECT_EQ((*ChooseKernel(op, {}, {}))->name, "library");
  EXPECT_EQ((*ChooseKernel(op, {}, {}, {.deterministic = true}))->name, "plain");
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
