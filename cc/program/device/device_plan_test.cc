#include "cc/program/device/device_plan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "cc/device/testing/test_device.h"
#include "cc/ops/testing/test_device_ops.h"
#include "cc/program/device/device_executor.h"
#include "cc/program/program.h"
#include "cc/program/testing/tiny_llama.h"

namespace pagemill::program {
namespace {

using device::testing::TestDevice;

Target TheTarget() { return {.ops = ops::testing::TestDeviceOps()}; }

ExecutorOptions Options(int32_t num_blocks) {
  ExecutorOptions options;
  options.num_threads = 1;
  options.max_num_tokens = 32;
  options.max_num_seqs = options.max_num_logits_rows = 4;
  options.num_blocks = num_blocks;
  return options;
}

struct Case {
  std::string text;
  DeviceExecutorOptions device_options;
};

class DevicePlanTest : public ::testing::TestWithParam<Case> {};

TEST_P(DevicePlanTest, IsWhatTheExecutorAllocates) {
  const auto& [text, device_options] = GetParam();
  const auto plan = PlanDevice(*Program::Parse(text), TheTarget(), Options(8), device_options);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  TestDevice device;
  const auto executor = DeviceExecutor::Create(*Program::Parse(text), TheTarget(), device,
                                               Options(8), device_options);
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  const device::MemoryBytes memory = device.CountMemory();
  EXPECT_EQ(memory.total - memory.free, plan->allocated_bytes());
  EXPECT_EQ(device.most_host_bytes(), plan->host_bytes());
}

INSTANTIATE_TEST_SUITE_P(
    Programs, DevicePlanTest,
    ::testing::Values(
        Case{testing::TinyLlamaText({.window = 8}), {.max_blocks = 4}},
        Case{testing::TinyLlamaText({.weight_dtype = DType::kQ8_0}),
             {.max_blocks = 4, .max_steps_in_flight = 3, .token_columns = 80}},
        Case{testing::TinyLlamaText({.media = true}),
             {.max_blocks = 4, .token_columns = 83, .upload = {.buffer_bytes = 4096}}},
        Case{testing::TinyLlamaText({.pooled = true}), {.max_graph_tokens = 0}},
        Case{testing::TinyLlamaText({}),
             {.max_blocks = 4, .upload = {.buffer_bytes = 4096, .offload_bytes = 50'000}}},
        Case{testing::TinyLlamaText({.weight_dtype = DType::kQ8_0}),
             {.max_blocks = 4, .token_columns = 80, .upload = {.offload_bytes = 50'000}}}));

TEST(DevicePlan, KeepsAsManyWeightsOnTheHostAsItIsAskedFor) {
  const Program program = *Program::Parse(testing::TinyLlamaText({}));
  const auto plan = [&](int64_t offload_bytes) {
    return PlanDevice(program, TheTarget(), Options(8),
                      {.upload = {.offload_bytes = offload_bytes}});
  };
  const DevicePlan none = *plan(0);
  EXPECT_EQ(none.host_weight_bytes, 0);
  const DevicePlan some = *plan(50'000);
  EXPECT_GE(some.host_weight_bytes, 50'000);
  EXPECT_LT(some.host_weight_bytes, 100'000);
  EXPECT_NEAR(static_cast<double>(some.weight_bytes + some.host_weight_bytes),
              static_cast<double>(none.weight_bytes), 256);
  EXPECT_EQ(none.total_bytes() - some.total_bytes(), none.weight_bytes - some.weight_bytes);
  const Status status = plan(none.weight_bytes + 1).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("--cpu-offload-gb is "), std::string::npos);
}

TEST(DevicePlan, HasNoCacheOfAProgramThatSharesOne) {
  const Program program = *Program::Parse(testing::TinyLlamaText({}));
  const DevicePlan own = *PlanDevice(program, TheTarget(), Options(8), {.max_blocks = 4});
  TestDevice device;
  const auto host =
      *DeviceExecutor::Create(program, TheTarget(), device, Options(8), {.max_blocks = 4});
  const int64_t before = device.CountMemory().free;
  const auto sharing = *DeviceExecutor::Create(program, TheTarget(), device, Options(8),
                                               {.max_blocks = 4, .shares_kv = true}, host.get());
  EXPECT_EQ(before - device.CountMemory().free, sharing->plan().allocated_bytes());
  EXPECT_EQ(sharing->plan().allocated_bytes(), own.allocated_bytes() - own.kv().arena_bytes());
}

TEST(DevicePlan, SaysWhatMakesTheProgramFit) {
  const std::string text = testing::TinyLlamaText({.hidden = 256, .ffn = 512});
  const DeviceExecutorOptions device_options = {.max_blocks = 4};
  const auto create = [&](int32_t num_blocks, int64_t memory_bytes) {
    TestDevice device(memory_bytes);
    return DeviceExecutor::Create(*Program::Parse(text), TheTarget(), device, Options(num_blocks),
                                  device_options)
        .status();
  };
  constexpr int32_t kManyBlocks = 4000;
  const auto plan =
      *PlanDevice(*Program::Parse(text), TheTarget(), Options(kManyBlocks), device_options);
  EXPECT_TRUE(create(kManyBlocks, plan.total_bytes()).ok());
  const Status status = create(kManyBlocks, plan.total_bytes() - (int64_t{40} << 20));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  const int64_t left = plan.kv().arena_bytes() - (int64_t{40} << 20);
  EXPECT_NE(status.message().find("are free: lower the KV cache to " + std::to_string(left >> 20) +
                                  "MiB (--kv-cache-memory-bytes)"),
            std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("(weights "), std::string::npos);
  const auto fitting = static_cast<int32_t>(left / plan.kv().page_bytes);
  EXPECT_TRUE(create(fitting, plan.total_bytes() - (int64_t{40} << 20)).ok());
  EXPECT_NE(create(kManyBlocks, 1 << 20).message().find("lower --max-num-batched-tokens"),
            std::string::npos);
}

TEST(DevicePlan, OpensNoFile) {
  const auto program = Program::Parse(R"(pagemill-program 3
file 0 /nowhere/model
weight w f32 64,32 0 4096
input x act tokens,32
value y act tokens,64
op linear x,w,- -> y
output y y
)");
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  const auto plan = PlanDevice(*program, TheTarget(), Options(8), {});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->weight_bytes, 64 * 32 * 4);
}

TEST(DevicePlan, ListsItsParts) {
  const auto plan = *PlanDevice(*Program::Parse(testing::TinyLlamaText({})), TheTarget(),
                                Options(8), {.token_columns = 80});
  for (const char* line : {"weights ", "kv cache ", "masks ", "counts ", "graphs ", "total ", "on the host"}) {
    EXPECT_NE(plan.ToString().find(line), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace pagemill::program
