// File: cc/sim/simulator.h
// A discrete-event simulation of one or many engines behind a router: real schedulers, virtual
// time, a cost model in place of devices.
//
//   PAGEMILL_ASSIGN_OR_RETURN(auto simulator, Simulator::Create(options, std::move(workload)));
//   while (!simulator->done()) PAGEMILL_RETURN_IF_ERROR(simulator->Run(1000));  // requests at a
//   time const Report& report = simulator->report();
//
// Events are arrivals and ends of steps, in the order of time; at equal times arrivals come first,
// then engines by number. Equal options and workloads give equal reports, on every machine.
//
// Cost: O(log engines) an event besides the scheduler's own; the routing policy's for an arrival.
// Memory: the block pools (56 to 80 bytes a block), and O(unfinished requests). Thread safety:
// none.
#ifndef PAGEMILL_CC_SIM_SIMULATOR_H_
#define PAGEMILL_CC_SIM_SIMULATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/scheduler/request_event.h"
#include "cc/scheduler/scheduler_options.h"
#include "cc/sim/cost_model.h"
#include "cc/sim/engine_node.h"
#include "cc/sim/report.h"
#include "cc/sim/request_table.h"
#include "cc/sim/routing/routing_policy.h"
#include "cc/sim/workload.h"

namespace pagemill::sim {

struct SimulatorOptions {
  int32_t num_engines = 1;
  std::string routing = "least_loaded";   // a name of routing/routing.h
  scheduler::SchedulerOptions scheduler;  // of every engine
  DeviceSpec device;
  ModelShape model;
  std::optional<int64_t> max_step_us = 0;  // as in engine::EngineOptions

  // kInvalidArgument names the field, its value and its range.
  Status Validate() const;
};

class Simulator {
 public:
  // kInvalidArgument if the options make no sense.
  static StatusOr<std::unique_ptr<Simulator>> Create(const SimulatorOptions& options,
                                                     std::unique_ptr<Workload> workload);

  // Goes on until so many more requests ended, or nothing is left. kInternal if engines have
  // work that they do not run.
  Status Run(uint64_t num_requests);
  bool done() const { return steps_.empty() && !workload_->NextTime(); }
  // So far.
  const Report& report() const { return report_; }

  Status CheckIntegrity() const;

 private:
  // What the report's gauges and counters have of one engine.
  struct Known {
    int64_t busy_ns = 0;
    int64_t num_waiting = 0;
    int64_t num_running = 0;
    int64_t kv_blocks_used = 0;
    uint64_t preemptions = 0;
  };
  struct StepEnd {
    int64_t time_ns;
    int32_t engine;
    bool operator>(const StepEnd& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : engine > other.engine;
    }
  };

  Simulator(const SimulatorOptions& options, std::unique_ptr<Workload> workload,
            std::unique_ptr<RoutingPolicy> routing);

  void Deliver();
  void FinishStep();
  void StartStep(int32_t engine);
  void Account(int32_t engine, const scheduler::RequestEvent& event);
  void End(int32_t engine, step::RequestId id);
  void Observe(int32_t engine);

  const CostModel cost_;
  std::unique_ptr<Workload> workload_;
  std::unique_ptr<RoutingPolicy> routing_;
  RequestTable requests_;
  std::vector<std::unique_ptr<EngineNode>> engines_;
  std::vector<Known> known_;    // by engine
  std::vector<int32_t> loads_;  // unfinished requests by engine
  std::priority_queue<StepEnd, std::vector<StepEnd>, std::greater<>> steps_;
  std::vector<scheduler::RequestEvent> events_;  // memory that steps reuse
  Gauges gauges_;
  int64_t now_ns_ = 0;
  Report report_;
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_SIMULATOR_H_
