// Ranks that are processes map each other's memory.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cc/comm/shared_memory_world.h"
#include "cc/ops/collective.h"
#include "cuda/device/gpu_device.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

constexpr size_t kSize = 100;

// The sum of 1 and 10 in each element, or why there is none.
Status CheckSum(std::shared_ptr<comm::SharedSegment> segment, int32_t rank) {
  PAGEMILL_ASSIGN_OR_RETURN(const auto world,
                            comm::SharedMemoryWorld::Join(std::move(segment), rank));
  PAGEMILL_RETURN_IF_ERROR(world->WaitForAll(std::chrono::minutes(1)));
  PAGEMILL_ASSIGN_OR_RETURN(const std::unique_ptr<GpuDevice> gpu, GpuDevice::Open(rank));
  PAGEMILL_ASSIGN_OR_RETURN(const device::DeviceMemory memory, gpu->Allocate(4 * kSize, "x"));
  PAGEMILL_ASSIGN_OR_RETURN(const std::unique_ptr<device::Stream> stream, gpu->NewStream());
  const comm::Groups groups = world->groups();
  PAGEMILL_RETURN_IF_ERROR(stream->Join(ops::RanksOf(*groups.at(comm::Axis::kTensor))));
  std::vector<float> x(kSize, rank == 0 ? 1 : 10);
  stream->CopyToDevice(memory.data(), std::as_bytes(std::span(x)));
  ops::Attributes attributes;
  attributes.Set("ranks", 2);
  const TensorView view = TensorView::Dense(memory.data(), DType::kF32, {1, kSize});
  ops::KernelContext context = {.stream = stream.get()};
  for (int i = 0; i < 3; ++i) {
    AllReduceKernels()[0].run(
        {.inputs = {&view, 1}, .outputs = {&view, 1}, .attributes = &attributes}, context);
  }
  stream->CopyToHost(std::as_writable_bytes(std::span(x)), memory.data());
  const std::unique_ptr<device::Event> done = gpu->NewEvent();
  stream->Record(*done);
  PAGEMILL_RETURN_IF_ERROR(done->Synchronize());
  return x == std::vector<float>(kSize, 44) ? OkStatus() : Internal("the sum is wrong");
}

// The only test of its process: it forks before there are threads.
TEST(PeerProcesses, SumOverTwo) {
  const auto segment = *comm::SharedSegment::Create({.topology = {.tensor = 2}});
  const pid_t child = fork();
  if (child == 0) _exit(CheckSum(segment, 1).ok() ? EXIT_SUCCESS : EXIT_FAILURE);
  const Status status = CheckSum(segment, 0);
  EXPECT_TRUE(status.ok()) << status.ToString();
  int ended = 0;
  ASSERT_EQ(waitpid(child, &ended, 0), child);
  EXPECT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) == EXIT_SUCCESS);
}

}  // namespace
}  // namespace pagemill::gpu
