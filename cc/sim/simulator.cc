#include "cc/sim/simulator.h"

#include <algorithm>
#include <optional>

namespace pagemill::sim {
namespace {

constexpr int64_t kPrefixBlocksEach = 4096;  // that the router remembers
constexpr int64_t kMostPrefixBlocks = 1 << 24;
constexpr int32_t kKvEvents = 4096;  // more than a step makes, unless it evicts many blocks

router::RouterOptions MakeRouterOptions(const SimulatorOptions& options) {
  router::RouterOptions router;
  router.policy = options.routing;
  router.num_engines = options.num_engines;
  router.block_size = options.scheduler.kv_cache.block_size;
  router.hash_algorithm = options.scheduler.kv_cache.hash_algorithm;
  router.max_prefix_blocks = std::min(kMostPrefixBlocks, kPrefixBlocksEach * options.num_engines);
  return router;
}

}  // namespace

using scheduler::RequestEvent;

Status SimulatorOptions::Validate() const {
  if (num_engines < 1 || num_engines > 100000) {
    return InvalidArgument("num_engines is " + std::to_string(num_engines) +
                           ", it must be from 1 to 100000");
  }
  if (max_step_us.value_or(0) < 0) {
    return InvalidArgument("max_step_us is " + std::to_string(*max_step_us) +
                           ", it must be at least 0");
  }
  PAGEMILL_RETURN_IF_ERROR(device.Validate());
  PAGEMILL_RETURN_IF_ERROR(model.Validate());
  return scheduler.Validate();
}

StatusOr<std::unique_ptr<Simulator>> Simulator::Create(const SimulatorOptions& options,
                                                       std::unique_ptr<Workload> workload) {
  PAGEMILL_RETURN_IF_ERROR(options.Validate());
  auto router = router::Router::Create(MakeRouterOptions(options));
  PAGEMILL_RETURN_IF_ERROR(router.status());
  scheduler::SchedulerOptions scheduler = options.scheduler;
  if ((*router)->uses_prefixes()) scheduler.kv_cache.max_events = kKvEvents;
  std::unique_ptr<Simulator> simulator(
      new Simulator(options, std::move(workload), *std::move(router)));
  for (int32_t i = 0; i < options.num_engines; ++i) {
    auto node = EngineNode::Create(scheduler, options.max_step_us, &simulator->cost_,
                                   &simulator->requests_);
    PAGEMILL_RETURN_IF_ERROR(node.status());
    simulator->engines_.push_back(*std::move(node));
  }
  simulator->report_.kv_blocks_each = simulator->engines_[0]->stats().kv_blocks_total;
  return simulator;
}

Simulator::Simulator(const SimulatorOptions& options, std::unique_ptr<Workload> workload,
                     std::unique_ptr<router::Router> router)
    : cost_(options.device, options.model),
      workload_(std::move(workload)),
      router_(std::move(router)),
      requests_(options.model.vocab_size),
      known_(static_cast<size_t>(options.num_engines)) {
  report_.num_engines = options.num_engines;
}

Status Simulator::Run(uint64_t num_requests) {
  const uint64_t goal = report_.num_finished + report_.num_refused + num_requests;
  while (report_.num_finished + report_.num_refused < goal) {
    const std::optional<int64_t> arrival = workload_->NextTime();
    if (!arrival && steps_.empty()) break;
    const bool arrives = arrival && (steps_.empty() || *arrival <= steps_.top().time_ns);
    now_ns_ = arrives ? *arrival : steps_.top().time_ns;
    report_.series.Advance(now_ns_, gauges_);
    report_.duration_ns = now_ns_;
    if (arrives) {
      Deliver();
    } else {
      FinishStep();
    }
  }
  const auto [least, most] =
      std::minmax_element(known_.begin(), known_.end(),
                          [](const Known& a, const Known& b) { return a.busy_ns < b.busy_ns; });
  report_.least_busy_ns = least->busy_ns;
  report_.most_busy_ns = most->busy_ns;
  if (done() && requests_.size() > 0) {
    return Internal(std::to_string(requests_.size()) +
                    " requests are left that no engine can run; the workload needs something that "
                    "the simulator does not give");
  }
  return OkStatus();
}

void Simulator::Deliver() {
  Arrival arrival = workload_->Take();
  step::Request request;
  request.id = requests_.Add(&arrival);
  request.prompt_token_ids = std::move(arrival.prompt);
  request.sampling.max_tokens = arrival.num_output_tokens;
  request.sampling.ignore_eos = true;
  const step::RequestId id = request.id;
  const int32_t engine = *router_->Route(request);  // all engines are available
  ++report_.series.At(now_ns_).num_arrived;
  if (!engines_[engine]->Add(std::move(request)).ok()) {
    ++report_.num_refused;
    End(engine, id);
    return;
  }
  StartStep(engine);
  Observe(engine);
}

void Simulator::StartStep(int32_t engine) {
  const std::optional<StepCost> cost = engines_[engine]->Start(now_ns_);
  if (!cost) return;
  ++report_.num_steps;
  report_.step_tokens += static_cast<uint64_t>(engines_[engine]->num_tokens());
  report_.step_requests += static_cast<uint64_t>(engines_[engine]->num_entries());
  report_.busy_ns += cost->total_ns;
  report_.compute_ns += cost->compute_ns;
  report_.memory_ns += cost->memory_ns;
  known_[engine].busy_ns += cost->total_ns;
  ++gauges_.engines_busy;
  steps_.push({now_ns_ + cost->total_ns, engine});
}

void Simulator::FinishStep() {
  const int32_t engine = steps_.top().engine;
  steps_.pop();
  --gauges_.engines_busy;
  events_.clear();
  engines_[engine]->Finish(&events_);
  for (const RequestEvent& event : events_) Account(engine, event);
  StartStep(engine);
  Observe(engine);
  if (router_->uses_prefixes()) ReportKvEvents(engine);
}

void Simulator::Account(int32_t engine, const RequestEvent& event) {
  RequestRecord& record = requests_[event.id];
  TimeSeries::Point& point = report_.series.At(now_ns_);
  if (!event.new_token_ids.empty()) {
    if (!record.last_token_ns) {
      report_.queueing.Add(*record.start_ns - record.arrival_ns);
      report_.ttft.Add(now_ns_ - record.arrival_ns);
      const auto prompt = static_cast<uint64_t>(record.prompt_size);
      const auto cached = static_cast<uint64_t>(event.num_cached_tokens);
      report_.prompt_tokens += prompt;
      report_.cached_tokens += cached;
      point.prompt_tokens += prompt;
      point.cached_tokens += cached;
    } else {
      report_.itl.Add(now_ns_ - *record.last_token_ns);
    }
    record.last_token_ns = now_ns_;
    report_.generated_tokens += event.new_token_ids.size();
    point.generated_tokens += event.new_token_ids.size();
  }
  if (!event.finish_reason) return;
  report_.e2e.Add(now_ns_ - record.arrival_ns);
  ++report_.num_finished;
  ++point.num_finished;
  if (!event.error.ok()) ++report_.num_failed;
  End(engine, event.id);
}

void Simulator::End(int32_t engine, step::RequestId id) {
  router_->Finish(engine);
  workload_->Finish(requests_[id].ticket, now_ns_);
  requests_.Remove(id);
}

void Simulator::ReportKvEvents(int32_t engine) {
  const kv_cache::EventLog& log = *engines_[engine]->kv_events();
  uint64_t& next = known_[engine].next_kv_event;
  const StatusOr<std::vector<kv_cache::KvEvent>> events = log.Since(next);
  if (events.ok()) {
    for (const kv_cache::KvEvent& event : *events) router_->Observe(engine, event);
  } else {
    router_->Forget(engine);  // some are lost
  }
  next = log.next_sequence();
}

// Updates the gauges and counters with the state of one engine.
void Simulator::Observe(int32_t engine) {
  const scheduler::SchedulerStats stats = engines_[engine]->stats();
  Known& known = known_[engine];
  gauges_.num_waiting += stats.num_waiting - known.num_waiting;
  gauges_.num_running += stats.num_running - known.num_running;
  gauges_.kv_blocks_used += stats.kv_blocks_used - known.kv_blocks_used;
  report_.preemptions += stats.num_preemptions - known.preemptions;
  report_.series.At(now_ns_).preemptions += stats.num_preemptions - known.preemptions;
  known.num_waiting = stats.num_waiting;
  known.num_running = stats.num_running;
  known.kv_blocks_used = stats.kv_blocks_used;
  known.preemptions = stats.num_preemptions;
}

Status Simulator::CheckIntegrity() const {
  int64_t waiting = 0, running = 0;
  for (size_t i = 0; i < engines_.size(); ++i) {
    PAGEMILL_RETURN_IF_ERROR(engines_[i]->CheckIntegrity());
    const scheduler::SchedulerStats stats = engines_[i]->stats();
    waiting += stats.num_waiting;
    running += stats.num_running;
    if (router_->load(static_cast<int32_t>(i)).num_requests !=
        stats.num_waiting + stats.num_running) {
      return Internal("simulator: engine " + std::to_string(i) + " has another load than known");
    }
  }
  if (waiting != gauges_.num_waiting || running != gauges_.num_running ||
      static_cast<size_t>(waiting + running) != requests_.size()) {
    return Internal("simulator: gauges and engines disagree");
  }
  return OkStatus();
}

}  // namespace pagemill::sim
