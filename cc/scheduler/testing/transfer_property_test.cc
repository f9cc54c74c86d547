// Tier and connector faults against a model that knows no blocks (transfer_simulation.h).
#include <string>
#include <vector>

#include "cc/scheduler/testing/transfer_simulation.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

class TransferProperty : public testing::TestWithParam<TransferSetup> {};

TEST_P(TransferProperty, EveryRequestGetsItsExactTokens) {
  const TransferSetup& setup = GetParam();
  TransferReport report;
  RunTransferSimulation(setup, &report);
  if (HasFailure()) return;
  EXPECT_GT(report.num_finished, setup.num_operations / 30);
  // The setups reach what they are for.
  EXPECT_GT(report.connector.blocks_stored, 100u);
  EXPECT_GT(report.connector.blocks_loaded, 20u);
  EXPECT_GT(report.connector.num_deferred, 0u);
  EXPECT_GT(report.scheduler.kv_loaded_tokens, 0u);
  EXPECT_GT(report.scheduler.num_stray_transfer_results, 0u);
  EXPECT_EQ(report.connector.num_failures > 0, setup.percent_failing > 0 || setup.files);
  EXPECT_EQ(report.scheduler.num_failed_kv_loads > 0,
            setup.percent_failing + setup.percent_abandoned > 0);
  EXPECT_EQ(report.connector.blocks_demoted > 0, setup.disk_blocks * setup.host_blocks > 0);
}

std::vector<TransferSetup> Setups() {
  return {
      {.name = "HostTier"},
      {.name = "HostTierArc", .policy = "arc"},
      {.name = "HostAndDisk", .host_blocks = 12, .disk_blocks = 40},
      {.name = "DiskOnly", .host_blocks = 0, .disk_blocks = 40},
      {.name = "Files", .files = true},
      {.name = "ThreeStepsThatRunLate", .max_steps_in_flight = 3, .runs_late = true},
      {.name = "FilesAndStepsThatRunLate",
       .files = true,
       .max_steps_in_flight = 3,
       .runs_late = true},
      {.name = "TightPool", .num_blocks = 17, .max_steps_in_flight = 2, .runs_late = true},
      {.name = "MostTransfersFail", .percent_failing = 70},
      {.name = "NoneFails", .percent_failing = 0},
      {.name = "Abandoned", .percent_abandoned = 2},
  };
}

INSTANTIATE_TEST_SUITE_P(Setups, TransferProperty, testing::ValuesIn(Setups()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace pagemill::scheduler
