// File: sycl/device/testing/thread_ranks.h
// Ranks that are threads. Test code only.
//
//   RunRanks(2, [](const device::Ranks& ranks) { ... });
#ifndef PAGEMILL_SYCL_DEVICE_TESTING_THREAD_RANKS_H_
#define PAGEMILL_SYCL_DEVICE_TESTING_THREAD_RANKS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "cc/base/status.h"
#include "cc/comm/shared_memory_world.h"
#include "cc/device/stream.h"
#include "cc/ops/collective.h"

namespace pagemill::sycl::testing {

// Calls body(ranks) on a thread for each rank, and waits for all.
template <typename Body>
void RunRanks(int32_t num_ranks, const Body& body) {
  const auto segment = *comm::SharedSegment::Create({.topology = {.tensor = num_ranks}});
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto world = *comm::SharedMemoryWorld::Join(segment, rank);
      PAGEMILL_CHECK(world->WaitForAll(std::chrono::minutes(1)).ok());
      comm::Groups groups = world->groups();
      body(ops::RanksOf(*groups.at(comm::Axis::kTensor)));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace pagemill::sycl::testing

#endif  // PAGEMILL_SYCL_DEVICE_TESTING_THREAD_RANKS_H_
