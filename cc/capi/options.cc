// The options of an engine: pagemill_engine_options to HostOptions.
#include <string>
#include <utility>

#include "cc/capi/convert.h"
#include "cc/capi/versioned.h"

namespace pagemill::capi {
namespace {

constexpr size_t kFirstEngineOptionsSize = offsetof(pagemill_engine_options, scheduling_policy);
constexpr size_t kMaxTenantWeights = 100'000;

Status ReadTiers(const pagemill_engine_options& o, engine::KvTierOptions* tiers) {
  tiers->host_bytes = o.kv_host_bytes;
  PAGEMILL_ASSIGN_OR_RETURN(tiers->disk_path,
                            CopyOptionalString("kv_disk_path", o.kv_disk_path, kMaxPathBytes));
  tiers->disk_bytes = o.kv_disk_bytes;
  PAGEMILL_ASSIGN_OR_RETURN(tiers->policy,
                            CopyString("kv_tier_policy", o.kv_tier_policy, kMaxStringBytes));
  PAGEMILL_ASSIGN_OR_RETURN(
      tiers->connector_folder,
      CopyOptionalString("kv_connector_folder", o.kv_connector_folder, kMaxPathBytes));
  tiers->connector_bytes = o.kv_connector_bytes;
  tiers->shared_memory_bytes = o.kv_shared_memory_bytes;
  tiers->transfer_timeout_ms = o.kv_transfer_timeout_ms;
  return OkStatus();
}

Status ReadTenantWeights(const pagemill_engine_options& o, scheduler::TenantWeights* weights) {
  PAGEMILL_RETURN_IF_ERROR(
      CheckArray("tenant_weights", o.tenant_weights, o.num_tenant_weights, kMaxTenantWeights));
  for (size_t i = 0; i < o.num_tenant_weights; ++i) {
    const pagemill_tenant_weight& given = o.tenant_weights[i];
    PAGEMILL_ASSIGN_OR_RETURN(std::string tenant,
                              CopyString("tenant_weights", given.tenant, kMaxStringBytes));
    const auto weight = static_cast<int32_t>(given.weight);
    if (weight != given.weight) {
      return InvalidArgument("tenant_weights has weight " + std::to_string(given.weight) +
                             "; it must be from 1 to 1000");
    }
    weights->insert_or_assign(std::move(tenant), weight);
  }
  return OkStatus();
}

Status ReadEngine(const pagemill_engine_options& o, engine::EngineOptions* e) {
  e->max_waiting_requests = o.max_waiting_requests;
  e->long_prefill_token_threshold = o.long_prefill_token_threshold;
  e->max_partial_prefills = o.max_partial_prefills;
  e->max_long_partial_prefills = o.max_long_partial_prefills;
  e->max_waiting_tokens = o.max_waiting_tokens;
  e->max_waiting_per_tenant = o.max_waiting_per_tenant;
  e->max_queue_time_ms = o.max_queue_time_ms;
  e->max_in_flight_steps = o.max_in_flight_steps;
  e->max_pinned_blocks = o.max_pinned_blocks;
  e->max_kv_events = o.max_kv_events;
  e->output_interval_us = o.output_interval_us;
  if (o.max_step_us != -1) e->max_step_us = o.max_step_us;
  PAGEMILL_ASSIGN_OR_RETURN(e->scheduling_policy,
                            CopyString("scheduling_policy", o.scheduling_policy, kMaxStringBytes));
  PAGEMILL_ASSIGN_OR_RETURN(
      e->prefix_caching_hash,
      CopyString("prefix_caching_hash", o.prefix_caching_hash, kMaxStringBytes));
  PAGEMILL_ASSIGN_OR_RETURN(
      e->prefix_cache_eviction,
      CopyString("prefix_cache_eviction", o.prefix_cache_eviction, kMaxStringBytes));
  PAGEMILL_ASSIGN_OR_RETURN(e->enable_prefix_caching,
                            CheckFlag("enable_prefix_caching", o.enable_prefix_caching));
  PAGEMILL_ASSIGN_OR_RETURN(e->check_integrity, CheckFlag("check_integrity", o.check_integrity));
  PAGEMILL_RETURN_IF_ERROR(ReadTenantWeights(o, &e->tenant_weights));
  return ReadTiers(o, &e->kv_tiers);
}

}  // namespace

const pagemill_engine_options kDefaultEngineOptions = [] {
  const engine::KvTierOptions tiers;
  pagemill_engine_options o = {};
  o.struct_size = sizeof(o);
  o.max_model_len = 2048;
  o.max_num_tokens = 2048;
  o.max_num_seqs = 32;
  o.max_num_logits_rows = 32;
  o.block_size = 16;
  o.max_waiting_requests = 1024;
  o.kv_cache_dtype = "bf16";
  o.scheduling_policy = "fcfs";
  o.prefix_caching_hash = "xxh3-128";
  o.enable_prefix_caching = 1;
  o.max_step_us = -1;
  o.prefix_cache_eviction = "adaptive";
  o.kv_tier_policy = "lru";
  o.kv_connector_bytes = tiers.connector_bytes;
  o.kv_transfer_timeout_ms = tiers.transfer_timeout_ms;
  o.max_in_flight_steps = 1;
  return o;
}();

StatusOr<pagemill_engine_options> ReadOptions(const pagemill_engine_options* options) {
  pagemill_engine_options o = kDefaultEngineOptions;
  PAGEMILL_RETURN_IF_ERROR(CopyIn("options", options, kFirstEngineOptionsSize, &o));
  return o;
}

StatusOr<HostOptions> ToHostOptions(const pagemill_engine_options& o) {
  HostOptions h;
  if (o.runner == nullptr) {
    PAGEMILL_ASSIGN_OR_RETURN(h.program_path,
                              CopyString("program_path", o.program_path, kMaxPathBytes));
  }
  PAGEMILL_ASSIGN_OR_RETURN(const std::string dtype,
                            CopyString("kv_cache_dtype", o.kv_cache_dtype, kMaxStringBytes));
  h.max_model_len = o.max_model_len;
  h.num_ngram_drafts = o.num_ngram_drafts;
  h.executor.num_threads = o.num_threads;
  h.executor.max_num_tokens = o.max_num_tokens;
  h.executor.max_num_seqs = o.max_num_seqs;
  h.executor.max_num_logits_rows = o.max_num_logits_rows;
  h.executor.num_blocks = o.num_blocks;
  h.executor.block_size = o.block_size;
  PAGEMILL_ASSIGN_OR_RETURN(h.executor.kv_cache_dtype, program::ParseKvCacheDType(dtype));
  PAGEMILL_RETURN_IF_ERROR(ReadEngine(o, &h.engine));
  return h;
}

}  // namespace pagemill::capi
