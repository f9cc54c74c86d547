// Random operations against references that know nothing of blocks (scheduler_simulation.h): each
// world of simulation_setups.h, for a short time. scheduler_soak_test.cc takes longer.
#include <algorithm>
#include <string>
#include <vector>

#include "cc/scheduler/testing/scheduler_simulation.h"
#include "cc/scheduler/testing/simulation_setups.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

class SchedulerProperty : public testing::TestWithParam<SimulationSetup> {};

TEST_P(SchedulerProperty, EveryRequestGetsItsExactTokensAndEndsOnce) {
  const SimulationSetup& setup = GetParam();
  SimulationReport report;
  RunSchedulerSimulation(setup, &report);
  if (HasFailure()) return;
  EXPECT_GT(report.num_finished, setup.num_operations / 50);
  // The worlds reach what they are for.
  const SchedulerOptions& options = setup.options;
  EXPECT_EQ(report.num_failed > 0, setup.faults);
  EXPECT_EQ(report.num_expired > 0, setup.controls);
  EXPECT_EQ(report.num_pauses > 0, setup.controls);
  EXPECT_EQ(report.num_resets > 0, setup.controls);
  EXPECT_EQ(report.num_turns > 0, setup.streams && options.chunked_prefill && !options.pooling);
  const SchedulerStats& stats = report.scheduler;
  const auto has_checkpoints = [](const step::KvGroupOptions& group) {
    return group.checkpoints != step::StateCheckpoints::kNone;
  };
  const std::vector<step::KvGroupOptions>& groups = options.kv_cache.groups;
  const bool reads_prefixes = options.kv_cache.enable_prefix_caching && !options.pooling &&
                              std::all_of(groups.begin(), groups.end(), has_checkpoints);
  EXPECT_EQ(stats.prefix_cache_hit_tokens > 0, reads_prefixes);
  EXPECT_EQ(stats.accepted_draft_tokens > 0, options.max_draft_tokens > 0);
  EXPECT_EQ(stats.draft_tokens > stats.accepted_draft_tokens, options.max_draft_tokens > 0);
  EXPECT_GT(stats.num_preemptions, static_cast<uint64_t>(report.num_resets));
}

class TransferProperty : public testing::TestWithParam<SimulationSetup> {};

TEST_P(TransferProperty, KvComesAndGoes) {
  SimulationSetup setup = GetParam();
  setup.seed = 2;
  SimulationReport report;
  RunSchedulerSimulation(setup, &report);
  if (HasFailure()) return;
  EXPECT_GT(report.connector.kv_blocks_stored, 100u);
  EXPECT_GT(report.connector.kv_blocks_loaded, 20u);
  EXPECT_EQ(report.connector.num_deferred_kv_lookups > 0, setup.medium != SimulatedMedium::kPeer);
  EXPECT_GT(report.scheduler.kv_loaded_tokens, 0u);
  EXPECT_GT(report.scheduler.num_stray_transfer_results, 0u);
  const bool loses_files =
      setup.medium == SimulatedMedium::kFiles || setup.medium == SimulatedMedium::kPeer;
  EXPECT_EQ(report.connector.num_failed_kv_transfers > 0, setup.percent_failing > 0 || loses_files);
  EXPECT_EQ(report.scheduler.num_failed_kv_loads > 0,
            setup.percent_failing + setup.percent_abandoned > 0);
  EXPECT_EQ(report.connector.kv_blocks_demoted > 0, setup.disk_blocks * setup.host_blocks > 0);
}

std::vector<SimulationSetup> SetupsWithMedia() {
  std::vector<SimulationSetup> setups = SimulationSetups();
  std::erase_if(setups, [](const auto& s) { return s.medium == SimulatedMedium::kNone; });
  return setups;
}

std::string Name(const testing::TestParamInfo<SimulationSetup>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Worlds, SchedulerProperty, testing::ValuesIn(SimulationSetups()), Name);
INSTANTIATE_TEST_SUITE_P(Worlds, TransferProperty, testing::ValuesIn(SetupsWithMedia()), Name);

}  // namespace
}  // namespace pagemill::scheduler
