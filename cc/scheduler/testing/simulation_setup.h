// File: cc/scheduler/testing/simulation_setup.h
// A world for scheduler_simulation.h.
#ifndef PAGEMILL_CC_SCHEDULER_TESTING_SIMULATION_SETUP_H_
#define PAGEMILL_CC_SCHEDULER_TESTING_SIMULATION_SETUP_H_

#include <cstdint>
#include <ostream>

#include "cc/scheduler/scheduler_options.h"

namespace pagemill::scheduler {

// Small, so that everything is short all the time.
inline SchedulerOptions SimulationOptions() {
  SchedulerOptions options;
  options.max_num_tokens = 24;
  options.max_num_seqs = 6;
  options.max_num_logits_rows = 12;
  options.max_model_len = 60;
  options.vocab_size = 61;
  options.max_waiting_requests = 10;
  options.kv_cache.num_blocks = 24;
  options.kv_cache.block_size = 4;
  return options;
}

enum class SimulatedMedium {
  kNone,
  kTiers,
  kFiles,
  kPeer,  // requests hand their KV to others, by the parameters of the last output
};

struct SimulationSetup {
  const char* name = "";
  int num_operations = 10000;
  uint32_t seed = 1;
  SchedulerOptions options = SimulationOptions();
  int max_steps_in_flight = 1;
  // The model runs a step when it is collected, not when it is planned: what is freed meanwhile is
  // still written to.
  bool runs_late = false;
  bool controls = true;  // pause, resume, held starts, deadlines, resets under running requests
  bool streams = true;   // some requests have streaming input
  bool budgets = false;  // every second step has a StepBudget
  bool faults = true;    // steps and requests fail, runners answer nonsense

  SimulatedMedium medium = SimulatedMedium::kNone;
  int64_t host_blocks = 24;  // of the tiers
  int64_t disk_blocks = 0;
  const char* tier_policy = "lru";
  int percent_failing = 10;   // of transfers
  int percent_abandoned = 0;  // of operations
};

// For googletest.
inline void PrintTo(const SimulationSetup& setup, std::ostream* out) { *out << setup.name; }

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_TESTING_SIMULATION_SETUP_H_
