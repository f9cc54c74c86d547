// The engine. Every call releases the GIL: the engine's thread may want it for a step or a log
// line.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/base/duration_histogram.h"
#include "cc/bindings/bindings.h"
#include "cc/bindings/collectable.h"
#include "cc/bindings/engine_client_holder.h"
#include "cc/bindings/engine_control_bindings.h"
#include "cc/bindings/engine_holder.h"
#include "cc/bindings/fields.h"
#include "cc/bindings/python_matcher.h"
#include "cc/bindings/python_processor.h"
#include "cc/bindings/status_error.h"
#include "cc/bindings/wire.h"
#include "cc/engine/engine.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using engine::Engine;
using engine::RequestOutput;
using step::RequestId;
using step::SamplingParams;

namespace {

using Int32Vector = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

using WithoutGil = nb::call_guard<nb::gil_scoped_release>;

// Takes a function out of `fields`; nothing if it is None or not there.
std::optional<nb::callable> TakeFunction(nb::kwargs& fields, const char* name) {
  if (!fields.contains(name)) return std::nullopt;
  const nb::object function = fields[name];
  nb::del(fields[name]);
  if (function.is_none()) return std::nullopt;
  return nb::cast<nb::callable>(function);
}

step::Request ToRequest(nb::kwargs fields) {
  step::Request request;
  if (const auto matcher = TakeFunction(fields, "new_token_matcher")) {
    request.new_token_matcher = PythonMatcherFactory(*matcher);
  }
  if (const auto processor = TakeFunction(fields, "logits_processor")) {
    request.logits_processor = PythonProcessor(*processor);
  }
  SetFields(fields, &request);
  return request;
}

void Submit(EngineHolder& self, uint64_t request_id, std::vector<int32_t> prompt_token_ids,
            const SamplingParams* sampling, const nb::kwargs& fields) {
  step::Request request = ToRequest(fields);
  request.id = RequestId(request_id);
  request.prompt_token_ids = std::move(prompt_token_ids);
  if (sampling != nullptr) {
    request.sampling = *sampling;
  } else {
    request.pooling.emplace();
  }
  nb::gil_scoped_release release;
  ThrowIfError(self.engine().Submit(std::move(request)));
}

int32_t SaveSession(EngineHolder& self, const std::string& path, std::vector<int32_t> token_ids,
                    std::string cache_salt) {
  step::Request like;
  like.prompt_token_ids = std::move(token_ids);
  like.cache_salt = std::move(cache_salt);
  return ValueOrThrow(self.engine().SaveSession(path, std::move(like)));
}

engine::RestoredSession RestoreSession(EngineHolder& self, const std::string& path,
                                       const std::string& cache_salt) {
  nb::gil_scoped_release release;
  step::Request like;
  like.cache_salt = cache_salt;
  return ValueOrThrow(self.engine().RestoreSession(path, std::move(like)));
}

void BindRequest(nb::module_& m) {
  nb::class_<step::Request> request(m, "Request");
  request.def(
      "__init__",
      [](step::Request* self, nb::kwargs fields) {
        new (self) step::Request(ToRequest(std::move(fields)));
      },
      nb::arg("fields"));
  BindWire(request);
}

void BindEngineOptions(nb::module_& m) {
  using engine::EngineOptions;
  const EngineOptions defaults;
  nb::class_<EngineOptions>(m, "EngineOptions")
      .def(
          "__init__",
          [](EngineOptions* self, int32_t max_num_scheduled_tokens, int32_t max_num_seqs,
             int32_t long_prefill_token_threshold, int32_t max_waiting_requests,
             std::string scheduling_policy, bool enable_prefix_caching,
             std::string prefix_caching_hash, int32_t max_in_flight_steps, bool check_integrity,
             int64_t max_waiting_tokens, int32_t max_waiting_per_tenant, int64_t max_queue_time_ms,
             scheduler::TenantWeights tenant_weights, int32_t max_partial_prefills,
             int32_t max_long_partial_prefills, std::string prefix_cache_eviction,
             int64_t output_interval_us, int32_t max_pinned_blocks, int32_t max_kv_events,
             const engine::KvTierOptions* kv_tiers, std::optional<int64_t> max_step_us,
             double kv_block_age_sample) {
            EngineOptions options;
            options.max_num_scheduled_tokens = max_num_scheduled_tokens;
            options.max_num_seqs = max_num_seqs;
            options.long_prefill_token_threshold = long_prefill_token_threshold;
            options.max_waiting_requests = max_waiting_requests;
            options.scheduling_policy = std::move(scheduling_policy);
            options.enable_prefix_caching = enable_prefix_caching;
            options.prefix_caching_hash = std::move(prefix_caching_hash);
            options.max_in_flight_steps = max_in_flight_steps;
            options.check_integrity = check_integrity;
            options.max_waiting_tokens = max_waiting_tokens;
            options.max_waiting_per_tenant = max_waiting_per_tenant;
            options.max_queue_time_ms = max_queue_time_ms;
            options.tenant_weights = std::move(tenant_weights);
            options.max_partial_prefills = max_partial_prefills;
            options.max_long_partial_prefills = max_long_partial_prefills;
            options.prefix_cache_eviction = std::move(prefix_cache_eviction);
            options.output_interval_us = output_interval_us;
            options.max_pinned_blocks = max_pinned_blocks;
            options.max_kv_events = max_kv_events;
            if (kv_tiers != nullptr) options.kv_tiers = *kv_tiers;
            options.max_step_us = max_step_us;
            options.kv_block_age_sample = kv_block_age_sample;
            ThrowIfError(options.Validate());
            new (self) EngineOptions(std::move(options));
          },
          nb::kw_only(), nb::arg("max_num_scheduled_tokens") = defaults.max_num_scheduled_tokens,
          nb::arg("max_num_seqs") = defaults.max_num_seqs,
          nb::arg("long_prefill_token_threshold") = defaults.long_prefill_token_threshold,
          nb::arg("max_waiting_requests") = defaults.max_waiting_requests,
          nb::arg("scheduling_policy") = defaults.scheduling_policy,
          nb::arg("enable_prefix_caching") = defaults.enable_prefix_caching,
          nb::arg("prefix_caching_hash") = defaults.prefix_caching_hash,
          nb::arg("max_in_flight_steps") = defaults.max_in_flight_steps,
          nb::arg("check_integrity") = defaults.check_integrity,
          nb::arg("max_waiting_tokens") = defaults.max_waiting_tokens,
          nb::arg("max_waiting_per_tenant") = defaults.max_waiting_per_tenant,
          nb::arg("max_queue_time_ms") = defaults.max_queue_time_ms,
          nb::arg("tenant_weights") = defaults.tenant_weights,
          nb::arg("max_partial_prefills") = defaults.max_partial_prefills,
          nb::arg("max_long_partial_prefills") = defaults.max_long_partial_prefills,
          nb::arg("prefix_cache_eviction") = defaults.prefix_cache_eviction,
          nb::arg("output_interval_us") = defaults.output_interval_us,
          nb::arg("max_pinned_blocks") = defaults.max_pinned_blocks,
          nb::arg("max_kv_events") = defaults.max_kv_events,
          nb::arg("kv_tiers").none() = nb::none(), nb::arg("max_step_us") = defaults.max_step_us,
          nb::arg("kv_block_age_sample") = defaults.kv_block_age_sample);
}

void BindDurationHistogram(nb::module_& m) {
  nb::class_<DurationHistogram> histogram(m, "DurationHistogram");
  BindFields(histogram);
  histogram.attr("bounds_s") = nb::tuple(nb::cast(DurationHistogram::kBoundsS));
}

void BindEngineStats(nb::module_& m) {
  using engine::EngineStats;
  nb::class_<EngineStats> stats(m, "EngineStats");
  BindFields(stats);
  BindWire(stats);
  stats.attr("fields") = FieldTable<EngineStats>();
}

}  // namespace

void BindEngine(nb::module_& m) {
  BindRequest(m);
  BindEngineOptions(m);
  BindDurationHistogram(m);
  BindEngineStats(m);
  nb::class_<EngineHolder> engine(m, "Engine",
                                  nb::type_slots(CollectableSlots<EngineHolder>::kSlots));
  engine
      .def(
          "__init__",
          [](EngineHolder* self, nb::object runner, const engine::EngineOptions& options,
             nb::object log) {
            new (self) EngineHolder(std::move(runner), std::move(log), options);
          },
          nb::arg("runner"), nb::arg("options"), nb::kw_only(), nb::arg("log") = nb::none())
      .def(
          "submit",
          [](EngineHolder& self, uint64_t id, Int32Vector prompt, const SamplingParams* sampling,
             const nb::kwargs& fields) {
            Submit(self, id, {prompt.data(), prompt.data() + prompt.size()}, sampling, fields);
          },
          nb::arg("request_id"), nb::arg("prompt_token_ids").noconvert(),
          nb::arg("sampling").none(), nb::arg("fields"))
      .def(
          "submit",
          [](EngineHolder& self, const step::Request& request) {
            step::Request copy = request;
            nb::gil_scoped_release release;
            ThrowIfError(self.engine().Submit(std::move(copy)));
          },
          nb::arg("request"))
      .def("submit", &Submit, nb::arg("request_id"), nb::arg("prompt_token_ids"),
           nb::arg("sampling").none(), nb::arg("fields"))
      .def(
          "abort", [](EngineHolder& self, uint64_t id) { self.engine().Abort(RequestId(id)); },
          nb::arg("request_id"), WithoutGil())
      .def(
          "poll", [](EngineHolder& self) { return self.engine().Poll(); }, WithoutGil())
      .def(
          "wait",
          [](EngineHolder& self, double timeout_s) { return self.engine().Wait(timeout_s); },
          nb::arg("timeout_s"), WithoutGil())
      .def(
          "new_client", [](nb::object self) { return new EngineClientHolder(std::move(self)); },
          nb::rv_policy::take_ownership)
      .def("output_fd", [](EngineHolder& self) { return self.engine().output_fd(); })
      .def(
          "stats", [](EngineHolder& self) { return self.engine().stats(); }, WithoutGil())
      .def(
          "drain", [](EngineHolder& self) { self.engine().Drain(); }, WithoutGil())
      .def(
          "wait_idle",
          [](EngineHolder& self, double timeout_s) { return self.engine().WaitIdle(timeout_s); },
          nb::arg("timeout_s"), WithoutGil())
      .def(
          "shutdown", [](EngineHolder& self) { self.engine().Shutdown(); }, WithoutGil())
      .def("save_session", &SaveSession, nb::arg("path"), nb::arg("token_ids"), nb::kw_only(),
           nb::arg("cache_salt") = "", WithoutGil())
      .def(
          "restore_session",
          [](EngineHolder& self, const std::string& path, const std::string& cache_salt) {
            engine::RestoredSession session = RestoreSession(self, path, cache_salt);
            return nb::make_tuple(std::move(session.token_ids), session.num_cached_tokens);
          },
          nb::arg("path"), nb::kw_only(), nb::arg("cache_salt") = "");
  BindEngineControl(engine);
}

}  // namespace pagemill::bindings
