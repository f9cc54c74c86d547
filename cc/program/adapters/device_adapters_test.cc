#include "cc/program/adapters/device_adapters.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
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

constexpr int32_t kSlots = 3, kRank = 4, kTokens = 6, kIn = 4, kOut = 5;
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
    const Status on_device = on_device_->SetAdapter(slot, adapter.get());
    EXPECT_TRUE(on_device.ok()) << on_device.ToString();
    EXPECT_TRUE(on_cpu_->SetAdapter(slot, adapter).ok());
  }

  // A step in which token t has adapter `slots[t]`. Borrows `slots`.
  ops::StepBatch BatchOf(const std::vector<int32_t>& slots) const {
    return {{.num_tokens = kTokens,
             .num_requests = kTokens,
             .num_logits_rows = kTokens,
             .token_ids = zeros_.data(),
             .positions = zeros_.data(),
             .query_start = counts_.data(),
             .seq_lens = ones_.data(),
             .logits_rows = counts_.data(),
             .adapter_slots = slots.data()},
            /*kv=*/{},
            inputs_};
  }

  static std::vector<float> ResultOf(const ExecutorOutput& output) {
    const TensorView z = output.Find("z");
    return {z.Data<float>(), z.Data<float>() + z.Elements()};
  }

  template <typename AnyExecutor>
  std::vector<float> Run(AnyExecutor& executor, const std::vector<int32_t>& slots) {
    ExecutorOutput output;
    const Status status = executor.Execute(BatchOf(slots), &output);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return status.ok() ? ResultOf(output) : std::vector<float>();
  }

  std::vector<float> Collect() {
    ExecutorOutput output;
    const Status status = on_device_->Collect(&output);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return status.ok() ? ResultOf(output) : std::vector<float>();
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
  const std::vector<TensorView> inputs_ = {
      TensorView::Dense(x_.data(), DType::kF32, {kTokens, kIn}),
      TensorView::Dense(y_.data(), DType::kF32, {kTokens, kOut})};
  const std::vector<int32_t> zeros_ = std::vector<int32_t>(kTokens);
  const std::vector<int32_t> ones_ = std::vector<int32_t>(kTokens, 1);
  const std::vector<int32_t> counts_ = {0, 1, 2, 3, 4, 5, 6};
  TestDevice device_;
  std::unique_ptr<NativeExecutor> on_cpu_ =
      *NativeExecutor::Create(*Program::Parse(kText), {.ops = ops::CpuOps()}, Options());
  std::unique_ptr<DeviceExecutor> on_device_ = *DeviceExecutor::Create(
      *Program::Parse(kText), {.ops = ops::testing::TestDeviceOps()}, device_, Options(),
      {.max_adapter_rank = kRank});
};

TEST_F(DeviceAdaptersTest, StepsHaveTheAdaptersThatWereSetBefore) {
  const std::vector<int32_t> slots = {0, -1, 2, 1, 0, 2};
  ExpectEqual(slots);
  SetBoth(0, NewAdapter(2, 0));
  ExpectEqual(slots);  // recorded
  SetBoth(2, NewAdapter(3, 1));
  ExpectEqual(slots);  // replayed, with other entries of the same table
  const std::vector<float> before = Run(*on_device_, slots);
  SetBoth(0, NewAdapter(4, 2));
  ExpectEqual(slots);
  EXPECT_FALSE(ops::conformance::BitEqual(Run(*on_device_, slots), before));
  ExpectEqual({-1, -1, -1, -1, -1, -1});
  SetBoth(2, nullptr);
  ExpectEqual(slots);
  EXPECT_GT(device_.num_replays(), 3);
  EXPECT_EQ(device_.num_pageable_copies(), 0);
}

TEST_F(DeviceAdaptersTest, ASlotIsNotOverwrittenWhileStepsInFlightReadIt) {
  const std::vector<int32_t> slots = {0, -1, 0, 1, 0, 0};
  SetBoth(0, NewAdapter(3, 3));
  const std::vector<float> before = Run(*on_cpu_, slots);
  const auto next = NewAdapter(4, 4);
  device_.Hold();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(on_device_->Enqueue(BatchOf(slots)).ok());
  const int64_t enqueued = device_.num_enqueued();
  std::thread set([&] { EXPECT_TRUE(on_device_->SetAdapter(0, next.get()).ok()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(device_.num_enqueued(), enqueued) << "it waits for the steps";
  device_.Release();
  set.join();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(ops::conformance::BitEqual(Collect(), before));
  EXPECT_TRUE(on_cpu_->SetAdapter(0, next).ok());
  ExpectEqual(slots);
}

TEST_F(DeviceAdaptersTest, EmptyingASlotWaitsForNothing) {
  const std::vector<int32_t> slots = {0, -1, 0, 1, 0, 0};
  SetBoth(0, NewAdapter(3, 3));
  const std::vector<float> before = Run(*on_cpu_, slots);
  device_.Hold();
  EXPECT_TRUE(on_device_->Enqueue(BatchOf(slots)).ok());
  EXPECT_TRUE(on_device_->SetAdapter(0, nullptr).ok());
  EXPECT_TRUE(on_device_->Enqueue(BatchOf(slots)).ok());
  device_.Release();
  EXPECT_TRUE(ops::conformance::BitEqual(Collect(), before));
  EXPECT_TRUE(on_cpu_->SetAdapter(0, nullptr).ok());
  EXPECT_TRUE(ops::conformance::BitEqual(Collect(), Run(*on_cpu_, slots)));
}

TEST_F(DeviceAdaptersTest, WhatDoesNotFitIsRefusedAndChangesNothing) {
  SetBoth(1, NewAdapter(kRank, kRank));
  EXPECT_EQ(on_device_->SetAdapter(kSlots, nullptr).message(), "adapter slot 3 is not one of 3");
  const auto larger = NewAdapter(9, 9);
  const Status status = on_device_->CheckAdapter(*larger);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("raise --max-lora-rank to 7"), std::string::npos)
      << status.message();
  EXPECT_EQ(on_device_->SetAdapter(1, larger.get()).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(on_device_->CheckAdapter(*NewAdapter(9, 0)).ok()) << "of one layer";
  ExpectEqual({1, 1, 1, -1, 0, 1});

  const auto other = AdapterWeights::Make(*Program::Parse("pagemill-program 3\n"
                                                          "adapter one 5,4\n"
                                                          "input x act tokens,4\n"
                                                          "value z act tokens,4\n"
                                                          "op scale x -> z by=2\n"
                                                          "output z z\n"),
                                          {});
  EXPECT_EQ(on_device_->SetAdapter(1, other->get()).message(),
            "the adapter was made for another program");
}

TEST_F(DeviceAdaptersTest, ThePlanHasTheirMemory) {
  const DevicePlan& plan = on_device_->plan();
  const device::MemoryBytes memory = device_.CountMemory();
  EXPECT_EQ(memory.total - memory.free, plan.allocated_bytes());
  EXPECT_EQ(device_.most_host_bytes(), plan.host_bytes());
  EXPECT_EQ(plan.adapters.table_bytes,
            2 * kSlots * static_cast<int64_t>(sizeof(ops::AdapterMatrices)));
  // f32 [4, 4] and [4, 5], twice [5], each in units of 64 bytes, for two layers.
  EXPECT_EQ(plan.adapters.slot_bytes, 2 * (64 + 128 + 2 * 64));
}

}  // namespace
}  // namespace pagemill::program
