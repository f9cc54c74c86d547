#include "cc/sim/cost_model.h"

#include "gtest/gtest.h"

namespace pagemill::sim {
namespace {

ModelShape TinyShape() {
  ModelShape shape;
  shape.num_layers = 2;
  shape.hidden_size = 64;
  shape.num_heads = 4;
  shape.num_kv_heads = 2;
  shape.head_size = 16;
  shape.intermediate_size = 128;
  shape.vocab_size = 1000;
  return shape;
}

DeviceSpec OneNanosecondPerFlopAndByte() {
  DeviceSpec device;
  device.peak_flops = 1000000000;
  device.bandwidth_bytes = 1000000000;
  return device;
}

step::StepPlan Plan(int32_t context, int32_t num_tokens, bool sample) {
  step::StepPlan plan;
  plan.scheduled.emplace_back();
  plan.scheduled[0].num_computed_tokens = context;
  plan.scheduled[0].token_ids.assign(num_tokens, 1);
  plan.scheduled[0].sample = sample;
  plan.total_num_tokens = num_tokens;
  return plan;
}

TEST(ModelShape, CountsTheWeightsOfItsMatrices) {
  // q and o 64x64 each, k and v 64x32 each, three of 64x128; two layers; output embedding.
  EXPECT_EQ(TinyShape().num_weights(), 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128) + 64 * 1000);
  EXPECT_EQ(TinyShape().kv_token_bytes(), 2 * 2 * 2 * 16 * 2);
}

// Llama 3.1 8B: 8.03e9 parameters, of which the input embedding (0.525e9) and the norms are not
// read as matrices; 128 KiB of KV a token.
TEST(ModelShape, KnowsAPublishedModel) {
  ModelShape shape{32, 4096, 32, 8, 128, 14336, 3, 128256, 0, 16};
  EXPECT_EQ(shape.num_weights(), 7504658432);
  EXPECT_EQ(shape.kv_token_bytes(), 128 * 1024);
}

TEST(CostModel, CountsOneDecodeStep) {
  const ModelShape shape = TinyShape();
  const CostModel cost(OneNanosecondPerFlopAndByte(), shape);
  const StepCost step = cost.Of(Plan(10, 1, true));
  EXPECT_EQ(step.flops, 2 * shape.num_weights() + 4 * 2 * 4 * 16 * 11);
  EXPECT_EQ(step.bytes, 2 * shape.num_weights() + shape.kv_token_bytes() * 12);
  EXPECT_EQ(step.compute_ns, step.flops);
  EXPECT_EQ(step.memory_ns, step.bytes);
  EXPECT_EQ(step.total_ns, std::max(step.flops, step.bytes));
}

TEST(CostModel, AChunkedPrefillHasTheAttentionOfAWholeOne) {
  const CostModel cost(OneNanosecondPerFlopAndByte(), TinyShape());
  const int64_t whole = cost.Of(Plan(0, 96, true)).flops;
  EXPECT_EQ(cost.Of(Plan(0, 32, false)).flops + cost.Of(Plan(32, 64, true)).flops, whole);
}

TEST(CostModel, EfficienciesAndOverheadLengthenTheStep) {
  DeviceSpec device = OneNanosecondPerFlopAndByte();
  device.compute_efficiency_permille = 500;
  device.bandwidth_efficiency_permille = 250;
  device.step_overhead_ns = 77;
  const StepCost step = CostModel(device, TinyShape()).Of(Plan(0, 50, true));
  EXPECT_EQ(step.compute_ns, 2 * step.flops);
  EXPECT_EQ(step.memory_ns, 4 * step.bytes);
  EXPECT_EQ(step.total_ns, std::max(step.compute_ns, step.memory_ns) + 77);
}

TEST(CostModel, StatedWeightBytesReplaceTwoPerWeight) {
  ModelShape shape = TinyShape();
  shape.weight_bytes = 12345;
  const CostModel cost(OneNanosecondPerFlopAndByte(), shape);
  EXPECT_EQ(cost.Of(Plan(0, 1, true)).bytes, 12345 + 2 * shape.kv_token_bytes());
}

TEST(CostModel, RefusesImpossibleDevicesAndShapes) {
  DeviceSpec device = OneNanosecondPerFlopAndByte();
  device.bandwidth_bytes = 0;
  EXPECT_NE(device.Validate().message().find("bandwidth_bytes is 0"), std::string::npos);
  ModelShape shape = TinyShape();
  shape.num_kv_heads = 5;
  EXPECT_EQ(shape.Validate().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(shape.Validate().message().find("num_kv_heads is 5"), std::string::npos);
}

}  // namespace
}  // namespace pagemill::sim
