// The engine. Every call releases the GIL: the engine's thread may want it for a step or a log
// line.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/bindings/batch_arrays.h"
#include "cc/bindings/bindings.h"
#include "cc/bindings/collectable.h"
#include "cc/bindings/engine_holder.h"
#include "cc/bindings/status_error.h"
#include "cc/engine/engine.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using engine::Engine;
using engine::RequestOutput;
using step::RequestId;
using step::SamplingParams;

namespace {

using WithoutGil = nb::call_guard<nb::gil_scoped_release>;

void Submit(EngineHolder& self, uint64_t request_id, std::vector<int32_t> prompt_token_ids,
            const SamplingParams* sampling, int32_t priority, std::string cache_salt,
            bool skip_reading_prefix_cache, std::string tenant) {
  step::Request request;
  request.id = RequestId(request_id);
  request.prompt_token_ids = std::move(prompt_token_ids);
  if (sampling != nullptr) {
    request.sampling = *sampling;
  } else {
    request.pooling.emplace();
  }
  request.priority = priority;
  request.cache_salt = std::move(cache_salt);
  request.tenant = std::move(tenant);
  request.skip_reading_prefix_cache = skip_reading_prefix_cache;
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

template <typename T>
nb::object OrNone(const std::optional<T>& value) {
  return value ? nb::cast(*value) : nb::none();
}

// A numpy array that owns its copy, or None.
nb::object Pooled(const RequestOutput& output) {
  if (!output.pooled) return nb::none();
  auto copy = std::make_unique<std::vector<float>>(*output.pooled);
  std::vector<float>* data = copy.release();
  nb::capsule owner(data, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, float>(data->data(), {data->size()}, owner));
}

nb::object FinishReason(const RequestOutput& output) {
  if (!output.finish_reason) return nb::none();
  const std::string_view name = step::FinishReasonName(*output.finish_reason);
  return nb::str(name.data(), name.size());
}

nb::object ErrorText(const RequestOutput& output, std::string_view text) {
  return output.error.ok() ? nb::none() : nb::object(nb::str(text.data(), text.size()));
}

void BindRequestOutput(nb::module_& m) {
  nb::class_<RequestOutput>(m, "RequestOutput")
      .def_prop_ro("request_id", [](const RequestOutput& o) { return o.request_id.value(); })
      .def_ro("new_token_ids", &RequestOutput::new_token_ids)
      .def_prop_ro("logprobs", [](const RequestOutput& o) { return OrNone(o.logprobs); })
      .def_prop_ro("prompt_logprobs",
                   [](const RequestOutput& o) { return OrNone(o.prompt_logprobs); })
      .def_prop_ro("finish_reason", &FinishReason)
      .def_prop_ro("stop_token_id", [](const RequestOutput& o) { return OrNone(o.stop_token_id); })
      .def_ro("num_cached_tokens", &RequestOutput::num_cached_tokens)
      .def_prop_ro("pooled", &Pooled)
      .def_prop_ro(
          "error_code",
          [](const RequestOutput& o) { return ErrorText(o, StatusCodeName(o.error.code())); })
      .def_prop_ro("error_message",
                   [](const RequestOutput& o) { return ErrorText(o, o.error.message()); })
      .def_prop_ro("error_retry_after_s",
                   [](const RequestOutput& o) { return o.error.retry_after_s(); })
      .def_ro("queued_s", &RequestOutput::queued_s)
      .def_ro("prefill_s", &RequestOutput::prefill_s)
      .def_ro("decode_s", &RequestOutput::decode_s);
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
             int64_t output_interval_us, const engine::KvTierOptions* kv_tiers) {
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
            if (kv_tiers != nullptr) options.kv_tiers = *kv_tiers;
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
          nb::arg("kv_tiers").none() = nb::none());
}

void BindEngineStats(nb::module_& m) {
  using engine::EngineStats;
  nb::class_<EngineStats>(m, "EngineStats")
      .def_ro("num_running", &EngineStats::num_running)
      .def_ro("num_waiting", &EngineStats::num_waiting)
      .def_ro("num_waiting_tokens", &EngineStats::num_waiting_tokens)
      .def_ro("estimated_wait_s", &EngineStats::estimated_wait_s)
      .def_ro("kv_blocks_total", &EngineStats::kv_blocks_total)
      .def_ro("kv_blocks_used", &EngineStats::kv_blocks_used)
      .def_ro("draining", &EngineStats::draining)
      .def_ro("num_steps", &EngineStats::num_steps)
      .def_ro("num_failed_steps", &EngineStats::num_failed_steps)
      .def_ro("num_preemptions", &EngineStats::num_preemptions)
      .def_ro("prefix_cache_query_tokens", &EngineStats::prefix_cache_query_tokens)
      .def_ro("prefix_cache_hit_tokens", &EngineStats::prefix_cache_hit_tokens)
      .def_ro("kv_query_tokens", &EngineStats::kv_query_tokens)
      .def_ro("kv_loaded_tokens", &EngineStats::kv_loaded_tokens)
      .def_ro("num_failed_kv_loads", &EngineStats::num_failed_kv_loads)
      .def_ro("num_failed_kv_transfers", &EngineStats::num_failed_kv_transfers)
      .def_ro("kv_blocks_loaded", &EngineStats::kv_blocks_loaded)
      .def_ro("kv_blocks_stored", &EngineStats::kv_blocks_stored)
      .def_ro("kv_blocks_demoted", &EngineStats::kv_blocks_demoted)
      .def_ro("kv_blocks_evicted", &EngineStats::kv_blocks_evicted)
      .def_ro("kv_blocks_dropped", &EngineStats::kv_blocks_dropped)
      .def_ro("prompt_tokens", &EngineStats::prompt_tokens)
      .def_ro("generation_tokens", &EngineStats::generation_tokens)
      .def_ro("num_submitted", &EngineStats::num_submitted)
      .def_ro("num_refused", &EngineStats::num_refused)
      .def_ro("finished_stop", &EngineStats::finished_stop)
      .def_ro("finished_length", &EngineStats::finished_length)
      .def_ro("finished_abort", &EngineStats::finished_abort)
      .def_ro("finished_error", &EngineStats::finished_error)
      .def_ro("last_step_s", &EngineStats::last_step_s)
      .def_ro("heartbeat", &EngineStats::heartbeat)
      .def_ro("progress_age_s", &EngineStats::progress_age_s);
}

}  // namespace

void BindEngine(nb::module_& m) {
  BindRequestOutput(m);
  BindEngineOptions(m);
  BindEngineStats(m);
  nb::class_<EngineHolder>(m, "Engine", nb::type_slots(CollectableSlots<EngineHolder>::kSlots))
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
             int32_t priority, std::string salt, bool skip, std::string tenant) {
            Submit(self, id, {prompt.data(), prompt.data() + prompt.size()}, sampling, priority,
                   std::move(salt), skip, std::move(tenant));
          },
          nb::arg("request_id"), nb::arg("prompt_token_ids").noconvert(),
          nb::arg("sampling").none(), nb::kw_only(), nb::arg("priority") = 0,
          nb::arg("cache_salt") = "", nb::arg("skip_reading_prefix_cache") = false,
          nb::arg("tenant") = "")
      .def("submit", &Submit, nb::arg("request_id"), nb::arg("prompt_token_ids"),
           nb::arg("sampling").none(), nb::kw_only(), nb::arg("priority") = 0,
           nb::arg("cache_salt") = "", nb::arg("skip_reading_prefix_cache") = false,
           nb::arg("tenant") = "")
      .def(
          "abort", [](EngineHolder& self, uint64_t id) { self.engine().Abort(RequestId(id)); },
          nb::arg("request_id"), WithoutGil())
      .def(
          "poll", [](EngineHolder& self) { return self.engine().Poll(); }, WithoutGil())
      .def(
          "wait",
          [](EngineHolder& self, double timeout_s) { return self.engine().Wait(timeout_s); },
          nb::arg("timeout_s"), WithoutGil())
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
          nb::arg("path"), nb::kw_only(), nb::arg("cache_salt") = "")
      .def(
          "reset_prefix_cache", [](EngineHolder& self) { return self.engine().ResetPrefixCache(); },
          WithoutGil());
}

}  // namespace pagemill::bindings
