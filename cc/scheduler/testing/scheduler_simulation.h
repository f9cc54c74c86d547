// File: cc/scheduler/testing/scheduler_simulation.h
// A scheduler driven at random beside references that know nothing of blocks, batches, preemption
// or transfers (reference_request.h), a model that reads what its layers would read
// (hybrid_model.h), and a worker that fails, dawdles and repeats itself (pretended_worker.h).
//
// Every request must get exactly the tokens that the model gives it alone, and end once; what each
// call answers is predicted; the invariants hold after every operation; in the end nothing is held
// any more.
//
//   SimulationReport report;
//   RunSchedulerSimulation({.num_operations = 20000, .seed = 1}, &report);
#ifndef PAGEMILL_CC_SCHEDULER_TESTING_SCHEDULER_SIMULATION_H_
#define PAGEMILL_CC_SCHEDULER_TESTING_SCHEDULER_SIMULATION_H_

#include "cc/kv_cache/connector.h"
#include "cc/scheduler/scheduler_stats.h"
#include "cc/scheduler/testing/simulation_setup.h"

namespace pagemill::scheduler {

// How often what happened, so that a test can see that its setup reaches what it is for.
struct SimulationReport {
  SchedulerStats scheduler;
  kv_cache::KvConnectorStats connector;
  int num_finished = 0;  // with all their tokens
  int num_failed = 0;    // by a fault
  int num_expired = 0;
  int num_turns = 0;  // that did not end their request
  int num_pauses = 0;
  int num_resets = 0;  // that preempted a request
};

// With assertions of googletest. Stops at the first that fails.
void RunSchedulerSimulation(const SimulationSetup& setup, SimulationReport* report);

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_TESTING_SCHEDULER_SIMULATION_H_
