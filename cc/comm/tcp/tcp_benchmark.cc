// Latency and bandwidth of calls between two ranks of two nodes, threads that are connected over
// the loopback interface. Compare with shared_memory_benchmark.cc: the difference is the system's
// path of two sockets, to which a network adds its own time.
#include <benchmark/benchmark.h>

#include <memory>
#include <optional>
#include <vector>

#include "cc/comm/tcp/tcp_world.h"
#include "cc/comm/tcp/testing/reserved_port.h"

namespace pagemill::comm {
namespace {

std::optional<NodeOptions> options;  // of the running benchmark; made by its set-up

void ChoosePort(const benchmark::State&) {
  options.emplace(NodeOptions{.master = testing::ReservedPort(), .topology = {.tensor = 2}});
}

std::shared_ptr<TcpWorld> JoinBoth(const benchmark::State& state) {
  const auto world = *TcpWorld::Join(*options, state.thread_index());
  while (world->WaitForAll(std::chrono::seconds(1)).code() == StatusCode::kUnavailable) {
  }
  return world;
}

void BM_AllReduce(benchmark::State& state) {
  const auto world = JoinBoth(state);
  const Groups groups = world->groups();
  std::vector<float> x(static_cast<size_t>(state.range(0)), 0.0f);
  for (auto _ : state) {
    const Status status =
        groups.at(Axis::kTensor)->AllReduce(DType::kF32, x.data(), x.data(), state.range(0));
    if (!status.ok()) state.SkipWithError("the group has ended");
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}
BENCHMARK(BM_AllReduce)
    ->Arg(576)
    ->Arg(1536)
    ->Arg(1 << 20)
    ->Setup(ChoosePort)
    ->Threads(2)
    ->UseRealTime();

// There and back, as the hidden state of a token through two stages.
void BM_SendAndReceive(benchmark::State& state) {
  const auto world = JoinBoth(state);
  Group& group = *world->groups().at(Axis::kTensor);
  std::vector<std::byte> data(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    Status status;
    if (group.rank() == 0) status = group.Send(data, 1);
    if (status.ok()) status = group.Receive(data, 1 - group.rank());
    if (status.ok() && group.rank() == 1) status = group.Send(data, 0);
    if (!status.ok()) state.SkipWithError("the group has ended");
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_SendAndReceive)->Arg(2304)->Arg(1 << 20)->Setup(ChoosePort)->Threads(2)->UseRealTime();

}  // namespace
}  // namespace pagemill::comm
