// File: cc/sim/simulator.h
// A discrete-event simulation of one or many engines behind a router: real schedulers, virtual
// time, and a cost model instead of devices.
//
//   PAGEMILL_ASSIGN_OR_RETURN(auto simulator, Simulator::Create(options, std::move(workload)));
//   while (!simulator->done()) PAGEMILL_RETURN_IF_ERROR(simulator->Run(1000));  // requests at a
//   time const Report& report = simulator->report();
//
// Events are arrivals and ends of steps, in time order; at equal times arrivals come first, then
// engines by number. Equal options and workloads give equal reports on every machine.
//
// Cost: O(log engines) an event plus the scheduler's own; an arrival costs the routing policy's
// time. Memory: the block pools (56 to 80 bytes a block), and O(unfinished requests). Thread
// safety: none.
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
#include "cc/router/router.h"
#include "cc/scheduler/request_event.h"
#include "cc/scheduler/scheduler_options.h"
#include "cc/sim/cost_model.h"
#include "cc/sim/engine_node.h"
#include "cc/sim/report.h"
#include "cc/sim/request_table.h"
#include "cc/sim/workload.h"

namespace pagemill::sim {

struct SimulatorOptions {
  int32_t num_engines = 1;
  std::string routing = "least_loaded";   // a name of cc/router/routing_policy.h
  scheduler::SchedulerOptions scheduler;  // of every engine
  DeviceSpec device;
  ModelShape model;
  std::optional<int64_t> max_step_us = 0;  // as in engine::EngineOptions

  // kInvalidArgument names the field, its value and its range.
  Status Validate() const;
};

class Simulator {
 public:
  // kInvalidArgument if the options are invalid.
  static StatusOr<std::unique_ptr<Simulator>> Create(const SimulatorOptions& options,
                                                     std::unique_ptr<Workload> workload);

  // Runs until `num_requests` more requests have ended, or nothing is left. kInternal if engines
  // have work that they do not run.
  Status Run(uint64_t num_requests);
  bool done() const { return steps_.empty() && !workload_->NextTime(); }
  // The report so far.
  const Report& report() const { return report_; }

  Status CheckIntegrity() const;

 private:
  // One engine's contribution to the report's gauges and counters.
  struct Known {
    int64_t busy_ns = 0;
    int64_t num_waiting = 0;
    int64_t num_running = 0;
    int64_t kv_blocks_used = 0;
    uint64_t preemptions = 0;
    uint64_t next_kv_event = 1;  // the first that the router has not seen
  };
  struct StepEnd {
    int64_t time_ns;
    int32_t engine;
    bool operator>(const StepEnd& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : engine > other.engine;
    }
  };

  Simulator(const SimulatorOptions& options, std::unique_ptr<Workload> workload,
            std::unique_ptr<router::Router> router);

  void Deliver();
  void FinishStep();
  void StartStep(int32_t engine);
  void Account(int32_t engine, const scheduler::RequestEvent& event);
  void End(int32_t engine, step::RequestId id);
  void Observe(int32_t engine);
  void ReportKvEvents(int32_t engine);

  const CostModel cost_;
  std::unique_ptr<Workload> workload_;
  const std::unique_ptr<router::Router> router_;
  RequestTable requests_;
  std::vector<std::unique_ptr<EngineNode>> engines_;
  std::vector<Known> known_;  // by engine
  std::priority_queue<StepEnd, std::vector<StepEnd>, std::greater<>> steps_;
  std::vector<scheduler::RequestEvent> events_;  // reused by steps
  Gauges gauges_;
  int64_t now_ns_ = 0;
  Report report_;
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_SIMULATOR_H_
