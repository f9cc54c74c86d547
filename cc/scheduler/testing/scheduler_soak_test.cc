// More than a million operations over all worlds of simulation_setups.h. With sanitizers:
//   ./bazelw test --config=asan //cc/scheduler/testing:scheduler_soak_test    (ubsan, tsan alike)
#include <cstdint>
#include <string>

#include "cc/scheduler/testing/scheduler_simulation.h"
#include "cc/scheduler/testing/simulation_setups.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

TEST(SchedulerSoak, MoreThanAMillionOperationsOfAllKinds) {
  constexpr int64_t kMillion = 1'000'000;
  int64_t num_operations = 0, num_finished = 0;
  for (uint32_t seed = 11; num_operations < kMillion; ++seed) {
    for (SimulationSetup setup : SimulationSetups()) {
      SCOPED_TRACE(setup.name);
      setup.num_operations = 15'000;
      setup.seed = seed;
      SimulationReport report;
      RunSchedulerSimulation(setup, &report);
      ASSERT_FALSE(HasFailure()) << "with seed " << seed;
      num_operations += setup.num_operations;
      num_finished += report.num_finished;
    }
  }
  RecordProperty("operations", std::to_string(num_operations));
  EXPECT_GT(num_finished, num_operations / 50);
}

}  // namespace
}  // namespace pagemill::scheduler
