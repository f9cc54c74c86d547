// File: cc/scheduler/testing/simulation_setups.h
// Worlds for scheduler_simulation.h: each narrow in its own way, together all that a scheduler can
// be asked to do.
#ifndef PAGEMILL_CC_SCHEDULER_TESTING_SIMULATION_SETUPS_H_
#define PAGEMILL_CC_SCHEDULER_TESTING_SIMULATION_SETUPS_H_

#include <vector>

#include "cc/scheduler/testing/simulation_setup.h"

namespace pagemill::scheduler {

std::vector<SimulationSetup> SimulationSetups();

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_TESTING_SIMULATION_SETUPS_H_
