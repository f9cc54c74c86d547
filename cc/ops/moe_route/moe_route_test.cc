#include "cc/ops/moe_route/moe_route.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

using conformance::TestTensor;

TEST(MoeRoute, Conformance) {
  CheckMoeRouteConformance(MoeRouteOp(), device::DetectCapabilities());
}

struct Routed {
  std::vector<float> ids, weights;
};

using Settings = std::vector<std::pair<const char*, double>>;

Routed Route(const std::vector<float>& logits, int64_t choices, const Settings& settings,
             const std::vector<float>& bias = {}) {
  const int64_t experts = static_cast<int64_t>(logits.size());
  TestTensor x(DType::kF32, {1, experts}), b(DType::kF32, {experts});
  TestTensor ids(DType::kI32, {1, choices}), weights(DType::kF32, {1, choices});
  x.Set(logits);
  if (!bias.empty()) b.Set(bias);
  const TensorView inputs[] = {x.view(), bias.empty() ? TensorView{} : b.view()};
  const TensorView outputs[] = {ids.view(), weights.view()};
  Attributes attributes;
  attributes.Set("choices", static_cast<double>(choices));
  for (const auto& [name, value] : settings) attributes.Set(name, value);
  const OpCall call = {inputs, outputs, &attributes, nullptr};
  EXPECT_TRUE(MoeRouteOp().check(call).ok()) << MoeRouteOp().check(call).ToString();
  device::ThreadPool pool({.num_threads = 1});
  conformance::RunKernel(**ChooseKernel(MoeRouteOp(), device::Capabilities(), call), call, pool);
  return {ids.ToFloat(), weights.ToFloat()};
}

void ExpectNear(const std::vector<float>& values, const std::vector<double>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-6);
}

const std::vector<float> kLogits = {std::log(1.f), std::log(4.f), std::log(2.f), std::log(3.f)};

TEST(MoeRoute, SoftmaxOverAllOrOverTheChosen) {
  const Routed all = Route(kLogits, 2, {{"scoring", 0}});
  EXPECT_EQ(all.ids, (std::vector<float>{1, 3}));
  ExpectNear(all.weights, {0.4, 0.3});
  ExpectNear(Route(kLogits, 2, {{"scoring", 0}, {"renormalize", 1}}).weights, {4 / 7.0, 3 / 7.0});
  ExpectNear(Route(kLogits, 2, {{"scoring", 0}, {"scale", 10}}).weights, {4, 3});
}

TEST(MoeRoute, BiasMovesTheChoiceNotTheWeights) {
  // Sigmoids: 1/2, 4/5, 2/3, 3/4.
  const Routed routed = Route(kLogits, 2, {{"scoring", 1}}, {0.5f, 0, 0, 0});
  EXPECT_EQ(routed.ids, (std::vector<float>{0, 1}));
  ExpectNear(routed.weights, {0.5, 0.8});
}

TEST(MoeRoute, BiasIsAddedToLogits) {
  // Logits 0, 1.386, 0.693, 1.099: sigmoids would move the first in front of all.
  const std::vector<float> bias = {0.5f, 0, 0, 0};
  const Routed routed = Route(kLogits, 2, {{"scoring", 1}, {"logits_bias", 1}}, bias);
  EXPECT_EQ(routed.ids, (std::vector<float>{1, 3}));
  ExpectNear(routed.weights, {0.8, 0.75});
}

TEST(MoeRoute, FactorsChangeTheWeightsNotTheChoice) {
  TestTensor x(DType::kF32, {1, 4}), factors(DType::kF32, {4});
  TestTensor ids(DType::kI32, {1, 2}), weights(DType::kF32, {1, 2});
  x.Set(kLogits);
  factors.Set(std::vector<float>{9, 2, 9, 5});
  const TensorView inputs[] = {x.view(), {}, factors.view()};
  const TensorView outputs[] = {ids.view(), weights.view()};
  Attributes attributes;
  attributes.Set("choices", 2);
  attributes.Set("scoring", 0);
  const OpCall call = {inputs, outputs, &attributes, nullptr};
  ASSERT_TRUE(MoeRouteOp().check(call).ok()) << MoeRouteOp().check(call).ToString();
  device::ThreadPool pool({.num_threads = 1});
  conformance::RunKernel(**ChooseKernel(MoeRouteOp(), device::Capabilities(), call), call, pool);
  EXPECT_EQ(ids.ToFloat(), (std::vector<float>{1, 3}));
  ExpectNear(weights.ToFloat(), {0.8, 1.5});
}

TEST(MoeRoute, ChoosesFromTheBestGroups) {
  // Softmax numerators; groups of two. The best expert is in group 0, the best pair group 1.
  const std::vector<float> logits = {3, 0, 2.9f, 2.8f, 1, 0};
  const Settings settings = {{"scoring", 1}, {"groups", 3}, {"group_choices", 1}};
  EXPECT_EQ(Route(logits, 2, settings).ids, (std::vector<float>{0, 1}));
  Settings pairs = settings;
  pairs.emplace_back("group_top", 2);
  EXPECT_EQ(Route(logits, 2, pairs).ids, (std::vector<float>{2, 3}));
}

TEST(MoeRoute, SparseMixerWeighsChoicesAmongTheirNeighbours) {
  const Settings settings = {{"scoring", 2}, {"tolerance", 0.1}};
  // 3.8 is within 10 % of 4, 3.5 is not, and is within 10 % of 3.8, the second choice.
  const Routed routed = Route({3.5f, 4, 3.8f, -4}, 2, settings);
  EXPECT_EQ(routed.ids, (std::vector<float>{1, 2}));
  ExpectNear(routed.weights, {1 / (1 + std::exp(-0.2)), 1 / (1 + std::exp(-0.3))});
}

TEST(MoeRoute, IdsCountFromTheFirstExpertOfARank) {
  const Settings settings = {{"scoring", 0}, {"renormalize", 1}};
  const Routed whole = Route(kLogits, 2, settings);
  EXPECT_EQ(whole.ids, (std::vector<float>{1, 3}));
  Settings of_rank = settings;
  of_rank.emplace_back("first", 2);
  const Routed routed = Route(kLogits, 2, of_rank);
  EXPECT_EQ(routed.ids, (std::vector<float>{-1, 1}));
  EXPECT_EQ(routed.weights, whole.weights);
}

TEST(MoeRoute, LowerNumbersWinTies) {
  EXPECT_EQ(Route({1, 2, 2, 1, 2}, 4, {{"scoring", 0}}).ids, (std::vector<float>{1, 2, 4, 0}));
  // Both sigmoids round to 1: not a tie.
  EXPECT_EQ(Route({20, 30, 25}, 2, {{"scoring", 1}}).ids, (std::vector<float>{1, 2}));
}

TEST(MoeRoute, NanIsSeenInWeightsNeverInIds) {
  const Routed routed = Route({NAN, NAN, 1, NAN}, 3, {{"scoring", 0}, {"renormalize", 1}});
  EXPECT_EQ(routed.ids, (std::vector<float>{2, 0, 1}));
  for (const float weight : routed.weights) EXPECT_TRUE(std::isnan(weight));
}

TEST(MoeRoute, CheckNamesTheMismatch) {
  const auto check = [](int64_t choices, const Settings& settings) {
    const TensorView inputs[] = {TensorView::Dense(nullptr, DType::kF32, {3, 8}), {}};
    const TensorView outputs[] = {TensorView::Dense(nullptr, DType::kI32, {3, choices}),
                                  TensorView::Dense(nullptr, DType::kF32, {3, choices})};
    Attributes attributes;
    attributes.Set("choices", static_cast<double>(choices));
    for (const auto& [name, value] : settings) attributes.Set(name, value);
    return MoeRouteOp().check({.inputs = inputs, .outputs = outputs, .attributes = &attributes});
  };
  EXPECT_TRUE(check(2, {{"scoring", 0}}).ok());
  EXPECT_EQ(check(9, {{"scoring", 0}}).message(), "moe_route: cannot choose 9 of 8 experts");
  EXPECT_EQ(check(3, {{"scoring", 0}, {"groups", 4}, {"group_choices", 1}}).message(),
            "moe_route: cannot choose 3 of 2 experts");
  EXPECT_EQ(check(2, {{"scoring", 0}, {"groups", 3}}).message(),
            "moe_route: 8 experts are not a multiple of 3 groups");
  EXPECT_FALSE(check(2, {}).ok()) << "no scoring";
  EXPECT_TRUE(check(2, {{"scoring", 0}, {"first", 7}}).ok());
  EXPECT_FALSE(check(2, {{"scoring", 0}, {"first", 8}}).ok());
  EXPECT_FALSE(check(2, {{"scoring", 0}, {"groups", 4}, {"group_choices", 5}}).ok());
  EXPECT_TRUE(check(2, {{"scoring", 2}}).ok());
  EXPECT_FALSE(check(2, {{"scoring", 4}}).ok());
  EXPECT_FALSE(check(2, {{"scoring", 2}, {"groups", 2}, {"group_choices", 1}}).ok());
  EXPECT_FALSE(check(2, {{"scoring", 2}, {"tolerance", -1}}).ok());
}

}  // namespace
}  // namespace pagemill::ops
