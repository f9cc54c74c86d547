#include "cc/program/device/device_adapters.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "cc/device/testing/test_device.h"
#include "cc/ops/conformance.h"
#include "cc/ops/testing/test_device_ops.h"
#include "cc/program/adapters/adapter_weights.h"
#include "cc/program/device/device_executor.h"
#include "cc/program/native_executor.h"
#include "cc/program/program.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::program {
namespace {

using device::testing::TestDevice;

constexpr int32_t kSlots = 3, kTokens = 6, kIn = 4, kOut = 5;
constexpr char kText[] =
    "pagemill-program 3\n"
    "adapter other 5,4\n"
    "adapter one 5,4\n"
    "input x act tokens,4\n"
    "input y act tokens,5\n"
    "input adapter_slots i32 tokens\n"
    "value u act tokens,5\n"
    "value z act tokens,5\n"
    "op apply_adapter x,adapter_slots,-,-,y,other -> u\n"
    "op apply_adapter x,adapter_slots,-,-,u,one -> z\n"
    "output z z\n";

ExecutorOptions Options() {
  ExecutorOptions options;
  options.num_threads = 1;
  options.max_num_tokens = options.max_num_seqs = options.max_num_logits_rows = 8;
  options.max_adapters = kSlots;
  return options;
}

class DeviceAdaptersTest : public ::testing::Test {
 protected:
  // An adapter of `one`, and of `other` if it has a rank.
  std::shared_ptr<const AdapterWeights> NewAdapter(int64_t rank, int64_t other_rank) {
    std::vector<AdapterWeights::Layer> layers = {{.name = "one", .tensors = NewTensors(rank)}};
    layers[0].tensors.gain = NewTensor({kOut});
    if (other_rank > 0) layers.push_back({.name = "other", .tensors = NewTensors(other_rank)});
    return *AdapterWeights::Make(*Program::Parse(kText), layers);
  }

  void SetBoth(int32_t slot, const std::shared_ptr<const AdapterWeights>& adapter) {
    const Status on_device = on_device_->SetAdapter(slot, adapter);
    EXPECT_TRUE(on_device.ok()) << on_device.ToString();
    EXPECT_TRUE(on_cpu_->SetAdapter(slot, adapter).ok());
  }

  // A step in which token t has adapter `slots[t]`.
  template <typename AnyExecutor>
  std::vector<float> Run(AnyExecutor& executor, const std::vector<int32_t>& slots) {
    const std::vector<int32_t> zeros(kTokens), ones(kTokens, 1), counts = {0, 1, 2, 3, 4, 5, 6};
    const std::vector<TensorView> inputs = {
        TensorView::Dense(x_.data(), DType::kF32, {kTokens, kIn}),
        TensorView::Dense(y_.data(), DType::kF32, {kTokens, kOut})};
    const ops::StepBatch batch = {{.num_tokens = kTokens,
                                   .num_requests = kTokens,
                                   .num_logits_rows = kTokens,
                                   .token_ids = zeros.data(),
                                   .positions = zeros.data(),
                                   .query_start = counts.data(),
                                   .seq_lens = ones.data(),
                                   .logits_rows = counts.data(),
                                   .adapter_slots = slots.data()},
                                  /*kv=*/{},
                                  inputs};
    ExecutorOutput output;
    const Status status = executor.Execute(batch, &output);
    EXPECT_TRUE(status.ok()) << status.ToString();
    if (!status.ok()) return {};
    const TensorView z = output.Find("z");
    return {z.Data<float>(), z.Data<float>() + z.Elements()};
  }

  void ExpectEqual(const std::vector<int32_t>& slots) {
    EXPECT_TRUE(ops::conformance::BitEqual(Run(*on_device_, slots), Run(*on_cpu_, slots)));
  }

  ops::AdapterTensors NewTensors(int64_t rank) {
    return {.a = NewTensor({rank, kIn}),
            .b = NewTensor({kOut, rank}),
            .scale = 0.5f,
            .gain = {},
            .offset = {}};
  }
  TensorView NewTensor(const std::vector<int64_t>& shape) {
    int64_t size = 1;
    for (int64_t dim : shape) size *= dim;
    std::vector<float>& numbers = tensors_.emplace_back(NewNumbers(size));
    return shape.size() == 1 ? TensorView::Dense(numbers.data(), DType::kF32, {shape[0]})
                             : TensorView::Dense(numbers.data(), DType::kF32, {shape[0], shape[1]});
  }
  std::vector<float> NewNumbers(int64_t size) {
    std::vector<float> numbers(static_cast<size_t>(size));
    for (float& number : numbers) number = random_.Uniform(-1, 1);
    return numbers;
  }

  ops::conformance::Random random_{5};
  std::deque<std::vector<float>> tensors_;
  std::vector<float> x_ = NewNumbers(kTokens * kIn), y_ = NewNumbers(kTokens * kOut);
  TestDevice device_;
  std::unique_ptr<NativeExecutor> on_cpu_ =
      *NativeExecutor::Create(*Program::Parse(kText), {.ops = ops::CpuOps()}, Options());
  std::unique_ptr<DeviceExecutor> on_device_ = *DeviceExecutor::Create(
      *Program::Parse(kText), {.ops = ops::testing::TestDeviceOps()}, device_, Options(), {});
};

TEST_F(DeviceAdaptersTest, StepsHaveTheAdaptersThatWereSetBefore) {
  const std::vector<int32_t> slots = {0, -1, 2, 1, 0, 2};
  ExpectEqual(slots);
  SetBoth(0, NewAdapter(2, 0));
  ExpectEqual(slots);  // recorded
  SetBoth(2, NewAdapter(3, 1));
  ExpectEqual(slots);  // replayed, with other entries of the same table
  const std::vector<float> before = Run(*on_device_, slots);
  SetBoth(0, NewAdapter(7, 2));
  ExpectEqual(slots);
  EXPECT_FALSE(ops::conformance::BitEqual(Run(*on_device_, slots), before));
  SetBoth(2, nullptr);
  ExpectEqual(slots);
  EXPECT_GT(device_.num_replays(), 3);
  EXPECT_EQ(device_.num_pageable_copies(), 0);
}

TEST_F(DeviceAdaptersTest, TheMemoryOfAdaptersIsThatOfThoseWithSlots) {
  const int64_t free = device_.CountMemory().free;
  SetBoth(1, NewAdapter(4, 4));
  EXPECT_LT(device_.CountMemory().free, free);
  SetBoth(1, nullptr);
  EXPECT_EQ(device_.CountMemory().free, free);
  EXPECT_EQ(on_device_->SetAdapter(kSlots, nullptr).message(),
            "adapter slot 3 is not one of 3");
}

TEST_F(DeviceAdaptersTest, AnAdapterThatDoesNotFitLeavesTheSlotEmpty) {
  SetBoth(1, NewAdapter(4, 4));
  const device::DeviceMemory rest = *device_.Allocate(device_.CountMemory().free - 64, "the rest");
  EXPECT_EQ(on_device_->SetAdapter(1, NewAdapter(4, 4)).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(on_cpu_->SetAdapter(1, nullptr).ok());
  ExpectEqual({1, 1, 1, -1, 0, 1});
}

}  // namespace
}  // namespace pagemill::program
