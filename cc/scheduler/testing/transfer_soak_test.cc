// A million operations of transfer_simulation.h.
#include "cc/scheduler/testing/transfer_simulation.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

TEST(TransferSoak, AMillionOperationsWithFaults) {
  constexpr int kEach = 125000;
  const TransferSetup setups[] = {
      {.host_blocks = 12, .disk_blocks = 40, .policy = "arc"},
      {.host_blocks = 24, .percent_abandoned = 1},
      {.disk_blocks = 60, .max_steps_in_flight = 3, .runs_late = true},
      {.files = true, .max_steps_in_flight = 2, .runs_late = true, .percent_failing = 30},
  };
  for (TransferSetup setup : setups) {
    for (uint32_t seed : {11, 12}) {
      setup.num_operations = kEach;
      setup.seed = seed;
      TransferReport report;
      RunTransferSimulation(setup, &report);
      ASSERT_FALSE(HasFailure());
      EXPECT_GT(report.scheduler.kv_loaded_tokens, 1000u);
    }
  }
}

}  // namespace
}  // namespace pagemill::scheduler
