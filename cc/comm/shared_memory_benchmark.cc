// Latency and bandwidth of collectives between two ranks: threads with separate mappings, like
// processes. The limit of an all-reduce is the data that it must move: a rank writes its data once
// and reads that of both, compared with memcpy of the same bytes.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <vector>

#include "cc/comm/shared_memory_world.h"

namespace pagemill::comm {
namespace {

std::shared_ptr<SharedSegment> segment;  // of the running benchmark; made by its set-up

void MakeSegment(const benchmark::State& state) {
  segment = *SharedSegment::Create({.topology = {.tensor = 2}, .slot_bytes = state.range(1) << 10});
}

void DropSegment(const benchmark::State&) { segment.reset(); }

void BM_AllReduce(benchmark::State& state) {
  const auto mine = *SharedSegment::Open(segment->fd());
  const auto world = *SharedMemoryWorld::Join(mine, state.thread_index());
  const Groups groups = world->groups();
  Group& group = *groups.at(Axis::kTensor);
  std::vector<float> x(static_cast<size_t>(state.range(0)), 0.0f);
  (void)world->WaitForAll(std::chrono::seconds(10));
  for (auto _ : state) {
    if (!group.AllReduce(DType::kF32, x.data(), x.data(), state.range(0)).ok())
      state.SkipWithError("the group has ended");
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}
BENCHMARK(BM_AllReduce)
    ->ArgNames({"floats", "slot_KiB"})
    ->ArgsProduct({{576, 1536, 1 << 20}, {32, 128, 512}})
    ->Threads(2)
    ->UseRealTime()
    ->Setup(MakeSegment)
    ->Teardown(DropSegment);

void BM_Memcpy(benchmark::State& state) {
  std::vector<float> from(static_cast<size_t>(state.range(0)), 1.0f), to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}
BENCHMARK(BM_Memcpy)->ArgName("floats")->Arg(1 << 20)->Threads(2)->UseRealTime();

}  // namespace
}  // namespace pagemill::comm
