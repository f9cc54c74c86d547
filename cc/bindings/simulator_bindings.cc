// The simulator: option structs with their fields, and Simulator with its report as a dictionary.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/bindings/bindings.h"
#include "cc/bindings/status_error.h"
#include "cc/scheduler/scheduler_options.h"
#include "cc/sim/offline_optimum.h"
#include "cc/sim/simulator.h"
#include "cc/sim/synthetic_workload.h"
#include "cc/sim/trace_workload.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using scheduler::SchedulerOptions;
using sim::Histogram;
using sim::Report;
using sim::Simulator;
using sim::TimeSeries;

namespace {

nb::dict ToDict(const Histogram& histogram) {
  nb::dict dict;
  dict["count"] = histogram.count();
  dict["mean"] = histogram.mean();
  dict["min"] = histogram.min();
  for (int percent : {50, 90, 95, 99}) {
    dict[nb::str(("p" + std::to_string(percent)).c_str())] = histogram.Quantile(10 * percent);
  }
  dict["max"] = histogram.max();
  nb::list buckets;
  for (const Histogram::Bucket& bucket : histogram.NonEmpty()) {
    buckets.append(nb::make_tuple(bucket.low, bucket.high, bucket.count));
  }
  dict["buckets"] = buckets;
  return dict;
}

nb::dict ToDict(const TimeSeries& series) {
  const auto width = static_cast<double>(series.width_ns());
  const auto column = [&](auto member, double scale) {
    nb::list values;
    for (const TimeSeries::Point& point : series.points()) {
      values.append(static_cast<double>(point.*member) * scale);
    }
    return values;
  };
  using Point = TimeSeries::Point;
  nb::dict dict;
  dict["width_ns"] = series.width_ns();
  dict["num_arrived"] = column(&Point::num_arrived, 1);
  dict["num_finished"] = column(&Point::num_finished, 1);
  dict["generated_tokens"] = column(&Point::generated_tokens, 1);
  dict["prompt_tokens"] = column(&Point::prompt_tokens, 1);
  dict["cached_tokens"] = column(&Point::cached_tokens, 1);
  dict["preemptions"] = column(&Point::preemptions, 1);
  dict["waiting"] = column(&Point::waiting_ns, 1 / width);
  dict["running"] = column(&Point::running_ns, 1 / width);
  dict["kv_blocks_used"] = column(&Point::kv_blocks_ns, 1 / width);
  dict["engines_busy"] = column(&Point::busy_ns, 1 / width);
  return dict;
}

nb::dict ToDict(const Report& report) {
  nb::dict dict;
  dict["num_engines"] = report.num_engines;
  dict["kv_blocks_each"] = report.kv_blocks_each;
  dict["duration_ns"] = report.duration_ns;
  dict["num_finished"] = report.num_finished;
  dict["num_refused"] = report.num_refused;
  dict["num_failed"] = report.num_failed;
  dict["prompt_tokens"] = report.prompt_tokens;
  dict["cached_tokens"] = report.cached_tokens;
  dict["generated_tokens"] = report.generated_tokens;
  dict["preemptions"] = report.preemptions;
  dict["num_steps"] = report.num_steps;
  dict["step_tokens"] = report.step_tokens;
  dict["step_requests"] = report.step_requests;
  dict["busy_ns"] = report.busy_ns;
  dict["compute_ns"] = report.compute_ns;
  dict["memory_ns"] = report.memory_ns;
  dict["least_busy_ns"] = report.least_busy_ns;
  dict["most_busy_ns"] = report.most_busy_ns;
  dict["queueing"] = ToDict(report.queueing);
  dict["ttft"] = ToDict(report.ttft);
  dict["itl"] = ToDict(report.itl);
  dict["e2e"] = ToDict(report.e2e);
  dict["series"] = ToDict(report.series);
  return dict;
}

// (kind, tokens of its window or chunk)
using KvGroup = std::pair<std::string, int32_t>;

std::vector<KvGroup> KvGroups(const SchedulerOptions& options) {
  std::vector<KvGroup> groups;
  for (const auto& group : options.kv_cache.groups) {
    groups.emplace_back(group.kind, group.window_tokens);
  }
  return groups;
}

void SetKvGroups(SchedulerOptions& options, const std::vector<KvGroup>& groups) {
  options.kv_cache.groups.clear();
  for (const auto& [kind, window_tokens] : groups) {
    options.kv_cache.groups.push_back({.kind = kind, .window_tokens = window_tokens});
  }
}

void BindOptions(nb::module_& m) {
  using sim::DeviceSpec;
  using sim::ModelShape;
  nb::class_<DeviceSpec>(m, "SimDevice")
      .def(nb::init<>())
      .def_rw("peak_flops", &DeviceSpec::peak_flops)
      .def_rw("bandwidth_bytes", &DeviceSpec::bandwidth_bytes)
      .def_rw("compute_efficiency_permille", &DeviceSpec::compute_efficiency_permille)
      .def_rw("bandwidth_efficiency_permille", &DeviceSpec::bandwidth_efficiency_permille)
      .def_rw("step_overhead_ns", &DeviceSpec::step_overhead_ns);
  nb::class_<ModelShape>(m, "SimModel")
      .def(nb::init<>())
      .def_rw("num_layers", &ModelShape::num_layers)
      .def_rw("hidden_size", &ModelShape::hidden_size)
      .def_rw("num_heads", &ModelShape::num_heads)
      .def_rw("num_kv_heads", &ModelShape::num_kv_heads)
      .def_rw("head_size", &ModelShape::head_size)
      .def_rw("intermediate_size", &ModelShape::intermediate_size)
      .def_rw("num_mlp_matrices", &ModelShape::num_mlp_matrices)
      .def_rw("vocab_size", &ModelShape::vocab_size)
      .def_rw("weight_bytes", &ModelShape::weight_bytes)
      .def_rw("kv_bits", &ModelShape::kv_bits)
      .def_prop_ro("num_weights", &ModelShape::num_weights)
      .def_prop_ro("kv_token_bytes", &ModelShape::kv_token_bytes)
      .def("validate", [](const ModelShape& self) { ThrowIfError(self.Validate()); });
  nb::class_<SchedulerOptions>(m, "SimScheduler")
      .def(nb::init<>())
      .def_rw("max_num_tokens", &SchedulerOptions::max_num_tokens)
      .def_rw("max_num_seqs", &SchedulerOptions::max_num_seqs)
      .def_rw("max_num_logits_rows", &SchedulerOptions::max_num_logits_rows)
      .def_rw("max_model_len", &SchedulerOptions::max_model_len)
      .def_rw("long_prefill_token_threshold", &SchedulerOptions::long_prefill_token_threshold)
      .def_rw("max_waiting_requests", &SchedulerOptions::max_waiting_requests)
      .def_rw("policy", &SchedulerOptions::policy)
      .def_prop_rw(
          "num_blocks", [](const SchedulerOptions& self) { return self.kv_cache.num_blocks; },
          [](SchedulerOptions& self, int32_t value) { self.kv_cache.num_blocks = value; })
      .def_prop_rw(
          "block_size", [](const SchedulerOptions& self) { return self.kv_cache.block_size; },
          [](SchedulerOptions& self, int32_t value) { self.kv_cache.block_size = value; })
      .def_prop_rw(
          "enable_prefix_caching",
          [](const SchedulerOptions& self) { return self.kv_cache.enable_prefix_caching; },
          [](SchedulerOptions& self, bool value) { self.kv_cache.enable_prefix_caching = value; })
      .def_prop_rw(
          "eviction", [](const SchedulerOptions& self) { return self.kv_cache.eviction; },
          [](SchedulerOptions& self, std::string value) {
            self.kv_cache.eviction = std::move(value);
          })
      .def_prop_rw("kv_groups", &KvGroups, &SetKvGroups);
}

void BindWorkloads(nb::module_& m) {
  using sim::LengthOptions;
  using sim::SyntheticOptions;
  using sim::TraceOptions;
  nb::class_<LengthOptions>(m, "SimLengths")
      .def(nb::init<>())
      .def_rw("distribution", &LengthOptions::distribution)
      .def_rw("mean_tokens", &LengthOptions::mean_tokens)
      .def_rw("spread_permille", &LengthOptions::spread_permille)
      .def_rw("max_tokens", &LengthOptions::max_tokens);
  nb::class_<SyntheticOptions>(m, "SyntheticLoad")
      .def(nb::init<>())
      .def_rw("seed", &SyntheticOptions::seed)
      .def_rw("num_requests", &SyntheticOptions::num_requests)
      .def_rw("concurrency", &SyntheticOptions::concurrency)
      .def_rw("prompt", &SyntheticOptions::prompt)
      .def_rw("output", &SyntheticOptions::output)
      .def_rw("num_prefixes", &SyntheticOptions::num_prefixes)
      .def_rw("prefix_tokens", &SyntheticOptions::prefix_tokens)
      .def_rw("mean_turns", &SyntheticOptions::mean_turns)
      .def_rw("mean_think_ns", &SyntheticOptions::mean_think_ns)
      .def_prop_rw(
          "arrival_process", [](const SyntheticOptions& self) { return self.arrivals.process; },
          [](SyntheticOptions& self, std::string value) {
            self.arrivals.process = std::move(value);
          })
      .def_prop_rw(
          "mean_gap_ns", [](const SyntheticOptions& self) { return self.arrivals.mean_gap_ns; },
          [](SyntheticOptions& self, int64_t value) { self.arrivals.mean_gap_ns = value; })
      .def_prop_rw(
          "mean_burst", [](const SyntheticOptions& self) { return self.arrivals.mean_burst; },
          [](SyntheticOptions& self, int32_t value) { self.arrivals.mean_burst = value; });
  nb::class_<TraceOptions>(m, "TraceReplay")
      .def(nb::init<>())
      .def_rw("concurrency", &TraceOptions::concurrency)
      .def_rw("think_ns", &TraceOptions::think_ns);
}

// (time in ns, session, [(content, tokens)], prompt tokens, output tokens)
using TraceRow =
    std::tuple<int64_t, uint64_t, std::vector<std::pair<uint64_t, int32_t>>, int32_t, int32_t>;

std::vector<sim::TraceRequest> ToTrace(const std::vector<TraceRow>& rows) {
  std::vector<sim::TraceRequest> trace;
  trace.reserve(rows.size());
  for (const auto& [time_ns, session, content, prompt, output] : rows) {
    trace.push_back({time_ns, session, {}, prompt, output});
    for (const auto& [id, tokens] : content) trace.back().content.push_back({id, tokens, 0});
  }
  return trace;
}

nb::tuple BestHits(const std::vector<TraceRow>& rows, int32_t num_blocks, int32_t block_size) {
  const std::vector<sim::TraceRequest> trace = ToTrace(rows);
  StatusOr<sim::PrefixHits> hits = Internal("not computed");
  {
    nb::gil_scoped_release release;
    hits = sim::BestPrefixHits(trace, {num_blocks, block_size});
  }
  const sim::PrefixHits found = ValueOrThrow(std::move(hits));
  return nb::make_tuple(found.prompt_tokens, found.hit_tokens);
}

std::unique_ptr<sim::Workload> MakeWorkload(sim::SyntheticOptions load,
                                            const sim::SimulatorOptions& options) {
  load.vocab_size = options.model.vocab_size;
  load.max_context_tokens = options.scheduler.max_model_len;
  ThrowIfError(load.Validate());
  return std::make_unique<sim::SyntheticWorkload>(load);
}

}  // namespace

void BindSimulator(nb::module_& m) {
  BindOptions(m);
  BindWorkloads(m);
  using sim::SimulatorOptions;
  const auto options = [](int32_t engines, std::string routing, const SchedulerOptions& scheduler,
                          const sim::DeviceSpec& device, const sim::ModelShape& model,
                          std::optional<int64_t> max_step_us) {
    SimulatorOptions made{engines, std::move(routing), scheduler, device, model, max_step_us};
    made.scheduler.vocab_size = model.vocab_size;
    ThrowIfError(made.Validate());
    return made;
  };
  nb::class_<SimulatorOptions>(m, "SimulatorOptions")
      .def(nb::new_(options), nb::kw_only(), nb::arg("num_engines"), nb::arg("routing"),
           nb::arg("scheduler"), nb::arg("device"), nb::arg("model"),
           nb::arg("max_step_us") = SimulatorOptions().max_step_us);
  m.def("best_prefix_hits", &BestHits, nb::arg("trace"), nb::kw_only(), nb::arg("num_blocks"),
        nb::arg("block_size"));
  nb::class_<Simulator>(m, "Simulator")
      .def_static(
          "synthetic",
          [](const SimulatorOptions& options, const sim::SyntheticOptions& load) {
            return ValueOrThrow(Simulator::Create(options, MakeWorkload(load, options)));
          },
          nb::arg("options"), nb::arg("load"))
      .def_static(
          "replay",
          [](const SimulatorOptions& options, const std::vector<TraceRow>& rows,
             sim::TraceOptions replay) {
            replay.vocab_size = options.model.vocab_size;
            auto workload = ValueOrThrow(sim::TraceWorkload::Create(ToTrace(rows), replay));
            return ValueOrThrow(Simulator::Create(options, std::move(workload)));
          },
          nb::arg("options"), nb::arg("trace"), nb::arg("how"))
      .def(
          "run",
          [](Simulator& self, uint64_t num_requests) {
            Status status;
            {
              nb::gil_scoped_release release;
              status = self.Run(num_requests);
            }
            ThrowIfError(std::move(status));
          },
          nb::arg("num_requests"))
      .def_prop_ro("done", &Simulator::done)
      .def_prop_ro("num_ended",
                   [](const Simulator& self) {
                     return self.report().num_finished + self.report().num_refused;
                   })
      .def("report", [](const Simulator& self) { return ToDict(self.report()); })
      .def("report_text", [](const Simulator& self) { return self.report().ToText(); });
}

}  // namespace pagemill::bindings
