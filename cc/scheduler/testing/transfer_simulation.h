// File: cc/scheduler/testing/transfer_simulation.h
// A scheduler with a connector, a fake model and a worker that fails, dawdles, answers out of order
// and twice, driven at random. Every request must get exactly the tokens that the model gives it
// alone, the invariants hold after every operation, and in the end nothing is held any more.
//
//   RunTransferSimulation({.num_operations = 20000, .seed = 1}, &report);
#ifndef PAGEMILL_CC_SCHEDULER_TESTING_TRANSFER_SIMULATION_H_
#define PAGEMILL_CC_SCHEDULER_TESTING_TRANSFER_SIMULATION_H_

#include <cstdint>

#include "cc/kv_cache/connector.h"
#include "cc/scheduler/scheduler_stats.h"

namespace pagemill::scheduler {

struct TransferSetup {
  const char* name = "";
  int num_operations = 10000;
  uint32_t seed = 1;
  int64_t host_blocks = 24;
  int64_t disk_blocks = 0;
  bool files = false;  // the file connector instead of tiers
  const char* policy = "lru";
  int32_t num_blocks = 24;
  int max_steps_in_flight = 1;
  // The model runs a step when it is collected, not when it is planned: what is freed meanwhile is
  // still written to.
  bool runs_late = false;
  int percent_failing = 10;   // of transfers
  int percent_abandoned = 0;  // of operations
};

struct TransferReport {
  SchedulerStats scheduler;
  kv_cache::KvConnectorStats connector;
  int num_finished = 0;
};

// With assertions of googletest.
void RunTransferSimulation(const TransferSetup& setup, TransferReport* report);

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_TESTING_TRANSFER_SIMULATION_H_
