#include "cc/program/device/device_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cc/device/testing/test_device.h"
#include "cc/ops/testing/test_device_ops.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/program.h"
#include "cc/program/testing/tiny_llama.h"
#include "cc/program/testing/transposed_weights.h"
#include "cc/program/weights/weights.h"

namespace pagemill::program {
namespace {

using device::testing::TestDevice;

struct Uploaded {
  explicit Uploaded(int64_t buffer_bytes, int64_t offload_bytes = 0) {
    UploadOptions options = {.buffer_bytes = buffer_bytes, .offload_bytes = offload_bytes};
    options.on_progress = [this](int64_t done, int64_t total) {
      EXPECT_GT(done, sent);
      sent = done;
      EXPECT_GE(total, done);
    };
    StatusOr<DeviceWeights> uploaded =
        DeviceWeights::Upload(program, *Weights::Open(program), kernels, options, device);
    EXPECT_TRUE(uploaded.ok()) << uploaded.status().ToString();
    weights = *std::move(uploaded);
  }

  // The bytes of matrices that ops read as stored.
  std::vector<std::byte> Fetch() {
    std::vector<std::byte> all;
    const std::unique_ptr<device::Stream> stream = *device.NewStream();
    const std::unique_ptr<device::Event> done = device.NewEvent();
    for (size_t op = 0; op < program.ops().size(); ++op) {
      const std::vector<ValueId>& inputs = program.ops()[op].inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i] == kNoValue || program.value(inputs[i]).kind != ValueKind::kWeight) continue;
        std::vector<std::byte> bytes(static_cast<size_t>(program.value(inputs[i]).Bytes({})));
        stream->CopyToHost(bytes, weights.at(op, i).data);
        stream->Record(*done);
        EXPECT_TRUE(done->Synchronize().ok());
        all.insert(all.end(), bytes.begin(), bytes.end());
      }
    }
    return all;
  }

  const Program program = *Program::Parse(testing::TinyLlamaText({.seed = 2}));
  const KernelSelection kernels =
      *SelectKernels(program, {.ops = ops::testing::TestDeviceOps()}, ExecutorOptions());
  int64_t sent = 0;
  TestDevice device;
  DeviceWeights weights;
};

TEST(DeviceWeights, GoThroughTwoBuffers) {
  constexpr int64_t kBufferBytes = 1000;  // smaller than a matrix, larger than a vector
  Uploaded small(kBufferBytes);
  EXPECT_EQ(small.device.most_host_bytes(), 2 * kBufferBytes);
  EXPECT_GT(small.weights.bytes(), 100 * kBufferBytes);
  EXPECT_EQ(small.sent, small.weights.bytes());
  EXPECT_EQ(small.device.num_pageable_copies(), 0);
  EXPECT_GT(small.weights.seconds(), 0);
  Uploaded large(int64_t{1} << 30);
  EXPECT_EQ(large.device.most_host_bytes(), 2 * large.weights.bytes());
  EXPECT_EQ(small.Fetch(), large.Fetch());
}

TEST(DeviceWeights, AreReadFromTheHostIfTheyStayThere) {
  constexpr int64_t kBufferBytes = 1000;
  Uploaded none(kBufferBytes);
  for (const int64_t offload_bytes : {int64_t{1}, none.weights.bytes() / 2, int64_t{1} << 40}) {
    Uploaded some(kBufferBytes, offload_bytes);
    const device::MemoryBytes memory = some.device.CountMemory();
    const int64_t host_bytes = some.device.most_host_bytes() - 2 * kBufferBytes;
    EXPECT_EQ(some.sent, some.weights.bytes());
    EXPECT_EQ(some.weights.bytes(), memory.total - memory.free + host_bytes);
    EXPECT_GE(host_bytes, std::min(offload_bytes, none.weights.bytes() * 9 / 10));
    EXPECT_EQ(some.Fetch(), none.Fetch());
  }
}

int64_t OneLine(const TensorView&) { return 64; }
Status PackFirst(const TensorView& weight, std::byte* packed, device::ThreadPool&) {
  std::memcpy(packed, weight.data, sizeof(float));
  return OkStatus();
}
constexpr ops::WeightPacking kFirst = {
    .layout = "first", .inputs = 0b010, .bytes = OneLine, .pack = PackFirst};
constexpr ops::Kernel kPlain = {.op = "op", .name = "plain"};
constexpr ops::Kernel kPacks = {.op = "op", .name = "packs", .packing = &kFirst};

// Two matrices of an op, with biases.
constexpr char kWithBiases[] = R"(pagemill-program 3
file 0 @
weight w f32 2,2 0 0
weight b f32 2 0 16
weight v f32 2,2 0 24
weight c f32 2 0 40
input token_ids i32 tokens
value out f32 logits_rows,2
op first token_ids,w,b,v,c -> out
output logits out
constants 48
0000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041
)";

TEST(DeviceWeights, MatricesOfAnOpFollowEachOther) {
  const Program program = *Program::Parse(kWithBiases);
  KernelSelection kernels;
  kernels.kernels = {&kPlain};
  TestDevice device;
  const auto weights = DeviceWeights::Upload(program, *Weights::Open(program), kernels,
                                             {.buffer_bytes = 32}, device);
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  const auto offset = [&](size_t input) {
    return static_cast<const std::byte*>(weights->at(0, input).data) -
           static_cast<const std::byte*>(weights->at(0, 1).data);
  };
  EXPECT_EQ(offset(3), 64);
  EXPECT_EQ(offset(2), 256);
  EXPECT_EQ(offset(4), 256 + 64);
}

class StackedWeights : public ::testing::TestWithParam<int64_t> {};  // offload_bytes
INSTANTIATE_TEST_SUITE_P(Memories, StackedWeights, ::testing::Values(0, 1, 1 << 20));

TEST_P(StackedWeights, StacksAndPackedMatricesAreMadeOnTheWay) {
  const Program program = *Program::Parse(testing::kTransposedWeights);
  KernelSelection kernels;
  kernels.kernels = {&kPlain, &kPacks, &kPlain};
  TestDevice device;
  const auto weights =
      DeviceWeights::Upload(program, *Weights::Open(program), kernels,
                            {.buffer_bytes = 32, .offload_bytes = GetParam()}, device);
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  const auto fetch = [&](size_t op, size_t count) {
    std::vector<float> values(count);
    const std::unique_ptr<device::Stream> stream = *device.NewStream();
    const std::unique_ptr<device::Event> done = device.NewEvent();
    stream->CopyToHost(std::as_writable_bytes(std::span(values)), weights->at(op, 1).data);
    stream->Record(*done);
    EXPECT_TRUE(done->Synchronize().ok());
    return values;
  };
  const std::vector<float> expected(testing::kTransposedValues.begin(),
                                    testing::kTransposedValues.end());
  EXPECT_EQ(fetch(0, 6), std::vector<float>(expected.begin(), expected.begin() + 6));
  EXPECT_EQ(fetch(1, 1), std::vector<float>{expected[0]});
  EXPECT_TRUE(weights->at(1, 1).reordered);
  EXPECT_EQ(fetch(2, 12), expected);
  EXPECT_FALSE(weights->at(2, 1).reordered);
}

}  // namespace
}  // namespace pagemill::program
