// File: cc/scheduler/testing/random_request.h
// Requests for simulations: few distinct beginnings, so that prefixes are shared, and few distinct
// blocks, so that equal blocks stand behind different beginnings.
//
//   step::Request request = MakeRandomRequest(setup, id, now_us, &random);
#ifndef PAGEMILL_CC_SCHEDULER_TESTING_RANDOM_REQUEST_H_
#define PAGEMILL_CC_SCHEDULER_TESTING_RANDOM_REQUEST_H_

#include <cstdint>
#include <random>

#include "cc/scheduler/testing/simulation_setup.h"
#include "cc/step/request.h"

namespace pagemill::scheduler {

// In [low, high]; the same on every standard library.
inline int32_t Pick(int32_t low, int32_t high, std::mt19937* random) {
  return low + static_cast<int32_t>((*random)() % static_cast<uint32_t>(high - low + 1));
}

step::Request MakeRandomRequest(const SimulationSetup& setup, step::RequestId id, int64_t now_us,
                                std::mt19937* random);

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_TESTING_RANDOM_REQUEST_H_
