// File: cc/program/device/testing/executor_steps.h
// Tests of the device executor over the test device: the executor, one of the CPU beside it, and
// steps of some requests.
//
//   TestDevice device;
//   const auto executor = *OnDevice(text, device, {.max_blocks = kBlocks});
//   const auto reference = OnCpu(text);
//   for (const BatchBuilder& step : Steps(/*requests=*/3, /*decodes=*/4)) {
//     ... MustRun(*executor, step.view()), MustRun(*reference, step.view()) ...
//   }
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_TESTING_EXECUTOR_STEPS_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_TESTING_EXECUTOR_STEPS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/testing/test_device.h"
#include "cc/ops/conformance.h"
#include "cc/ops/testing/test_device_ops.h"
#include "cc/program/device/device_executor.h"
#include "cc/program/native_executor.h"
#include "cc/program/testing/batch_builder.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::program {

using device::testing::TestDevice;
using testing::BatchBuilder;

inline constexpr int32_t kBlockSize = 16;
inline constexpr int32_t kBlocks = 3;                // per request
inline constexpr int32_t kVocab = 83, kTokens = 80;  // columns of logits, and those that are tokens

inline ExecutorOptions Options() {
  ExecutorOptions options;
  options.num_threads = 1;
  options.max_num_tokens = 24;
  options.max_num_seqs = 6;
  options.max_num_logits_rows = 6;
  options.block_size = kBlockSize;
  options.num_blocks = 64;
  return options;
}

inline std::unique_ptr<NativeExecutor> OnCpu(const std::string& text) {
  auto executor = NativeExecutor::Create(*Program::Parse(text), {.ops = ops::CpuOps()}, Options());
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  return *std::move(executor);
}

inline StatusOr<std::unique_ptr<DeviceExecutor>> OnDevice(
    const std::string& text, TestDevice& device, const DeviceExecutorOptions& device_options) {
  return DeviceExecutor::Create(*Program::Parse(text), {.ops = ops::testing::TestDeviceOps()},
                                device, Options(), device_options);
}

inline std::vector<float> Logits(const ExecutorOutput& output) {
  const TensorView logits = output.logits();
  return {logits.Data<float>(), logits.Data<float>() + logits.Elements()};
}

inline std::vector<float> MustRun(Executor& executor, const ops::StepBatch& batch) {
  ExecutorOutput output;
  const Status status = executor.Execute(batch, &output);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return status.ok() ? Logits(output) : std::vector<float>();
}

// A prompt for each of `requests` requests, then steps of one token per request. `tables` is the
// program's number of block tables.
inline std::vector<BatchBuilder> Steps(int32_t requests, int32_t decodes, size_t tables = 1) {
  ops::conformance::Random random(7);
  const auto token = [&] { return static_cast<int32_t>(random.Int(0, 82)); };
  const std::vector<int32_t> block_sizes(tables, kBlockSize);
  std::vector<BatchBuilder> steps(static_cast<size_t>(decodes) + 1,
                                  BatchBuilder(block_sizes, kBlocks));
  for (int32_t r = 0; r < requests; ++r) {
    std::vector<int32_t> prompt(static_cast<size_t>(1 + r));
    std::generate(prompt.begin(), prompt.end(), token);
    steps[0].Add(r, 0, prompt);
    for (int32_t d = 0; d < decodes; ++d)
      steps[static_cast<size_t>(d) + 1].Add(r, 1 + r + d, {token()});
  }
  return steps;
}

// The max_graph_tokens of tests with graphs.
inline constexpr int32_t kGraphTokens = 16;

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_TESTING_EXECUTOR_STEPS_H_
