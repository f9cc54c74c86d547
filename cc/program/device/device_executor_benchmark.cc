// What a step of a device executor costs the host besides the device's driver: the batch is
// checked, padded and written, and outputs are found. Decode steps of so many greedy requests with
// tables of so many blocks, over a device that does nothing; replayed, or kernel by kernel, in which
// case the op table of tests copies each call. Time per step, which should be below 50 us.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "cc/base/status.h"
#include "cc/device/testing/test_device.h"
#include "cc/ops/testing/test_device_ops.h"
#include "cc/program/device/device_executor.h"
#include "cc/program/program.h"
#include "cc/program/testing/batch_builder.h"
#include "cc/program/testing/tiny_llama.h"

namespace pagemill::program {
namespace {

constexpr int32_t kTokens = 80;

class IdleStream final : public device::testing::TestStream {
 public:
  void Enqueue(device::testing::TestWork) override {}
  void CopyToDevice(std::byte*, std::span<const std::byte>) override {}
  void CopyToHost(std::span<std::byte>, const std::byte*) override {}
  void Record(device::Event&) override {}
  void BeginCapture() override {}
  StatusOr<std::unique_ptr<device::Graph>> EndCapture() override {
    return std::unique_ptr<device::Graph>(std::make_unique<device::Graph>());
  }
  void Replay(const device::Graph&) override {}
};

class IdleEvent final : public device::Event {
 public:
  Status Synchronize() override { return OkStatus(); }
};

class IdleDevice final : public device::Device {
 public:
  StatusOr<device::DeviceMemory> Allocate(int64_t bytes, const char*) override {
    return device::DeviceMemory(this, New(bytes));
  }
  StatusOr<device::HostMemory> AllocateHost(int64_t bytes, const char*) override {
    return device::HostMemory(this, New(bytes));
  }
  StatusOr<device::HostMemory> AllocateMapped(int64_t bytes, const char* purpose) override {
    return AllocateHost(bytes, purpose);
  }
  device::MemoryBytes CountMemory() override {
    return {.free = int64_t{1} << 40, .total = int64_t{1} << 40};
  }
  StatusOr<std::unique_ptr<device::Stream>> NewStream() override {
    return std::unique_ptr<device::Stream>(std::make_unique<IdleStream>());
  }
  std::unique_ptr<device::Event> NewEvent() override { return std::make_unique<IdleEvent>(); }

 private:
  static std::span<std::byte> New(int64_t bytes) {
    const auto size = static_cast<size_t>(bytes + 63) / 64 * 64;
    return {static_cast<std::byte*>(std::aligned_alloc(64, size)), size};
  }
  void Free(std::span<std::byte> bytes) override { std::free(bytes.data()); }
  void FreeHost(std::span<std::byte> bytes) override { std::free(bytes.data()); }
};

// Args: requests, blocks of a table, replayed.
void BM_DecodeStep(benchmark::State& state) {
  const auto requests = static_cast<int32_t>(state.range(0));
  const auto blocks = static_cast<int32_t>(state.range(1));
  ExecutorOptions options;
  options.num_threads = 1;
  options.max_num_seqs = options.max_num_logits_rows = 256;
  options.max_num_tokens = 512;
  options.num_blocks = 2;
  IdleDevice device;
  const auto executor = DeviceExecutor::Create(
      *Program::Parse(testing::TinyLlamaText({.layers = 32})),
      {.ops = ops::testing::TestDeviceOps()}, device, options,
      {.max_blocks = blocks,
       .max_graph_tokens = state.range(2) != 0 ? 256 : 0,
       .token_columns = kTokens});
  PAGEMILL_CHECK(executor.ok());
  testing::BatchBuilder builder(options.block_size, blocks);
  for (int32_t r = 0; r < requests; ++r) builder.Add(0, 10, {1});
  ops::StepBatch batch = builder.view();
  batch.argmax_columns = kTokens;
  const auto step = [&] {
    ExecutorOutput output;
    PAGEMILL_CHECK((*executor)->Execute(batch, &output).ok());
    benchmark::DoNotOptimize(output.maxima.data());
  };
  for (int i = 0; i < 2; ++i) step();  // the second records a graph
  for (auto _ : state) step();
}
BENCHMARK(BM_DecodeStep)
    ->ArgsProduct({{1, 32, 256}, {64, 2048}, {0, 1}})
    ->ArgNames({"requests", "blocks", "replayed"});

}  // namespace
}  // namespace pagemill::program
