// File: cc/capi/convert.h
// Converts the structs of pagemill.h to types of the engine, and back. Rejects every invalid field
// of a host's struct, with a message, before it is used.
#ifndef PAGEMILL_CC_CAPI_CONVERT_H_
#define PAGEMILL_CC_CAPI_CONVERT_H_

#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/capi/host.h"
#include "cc/capi/pagemill.h"
#include "cc/engine/engine_stats.h"
#include "cc/scheduler/input_chunk.h"
#include "cc/scheduler/pause_mode.h"
#include "cc/step/request.h"

namespace pagemill::capi {

extern const pagemill_engine_options kDefaultEngineOptions;
extern const pagemill_sampling_params kDefaultSamplingParams;
extern const pagemill_request kDefaultRequest;
extern const pagemill_output kDefaultOutput;
extern const pagemill_stats kDefaultStats;
extern const pagemill_kv_events kDefaultKvEvents;
extern const pagemill_runner kDefaultRunner;
extern const pagemill_kv_group kDefaultKvGroup;
extern const pagemill_request_result kDefaultRequestResult;

// Sizes in the first header of this ABI version.
inline constexpr size_t kFirstOutputSize = offsetof(pagemill_output, error_message);
inline constexpr size_t kFirstStatsSize = 5 * sizeof(uint64_t);  // its size and four gauges

inline constexpr size_t kFirstKvEventsSize = offsetof(pagemill_kv_events, dropped) + 8;
inline constexpr size_t kFirstRunnerSize = offsetof(pagemill_runner, prefix_caching) + 4;
inline constexpr size_t kFirstKvGroupSize = offsetof(pagemill_kv_group, checkpoints) + 4;
inline constexpr size_t kFirstRequestResultSize =
    offsetof(pagemill_request_result, num_missing_drafts) + 4;

inline constexpr size_t kMaxStringBytes = 1024;  // of a name
inline constexpr size_t kMaxPathBytes = 4096;    // PATH_MAX

// `field` names the value in messages. NULL is an error.
StatusOr<std::string> CopyString(const char* field, const char* value, size_t max_bytes);
// NULL is the empty string.
StatusOr<std::string> CopyOptionalString(const char* field, const char* value,
                                         size_t max_bytes = kMaxStringBytes);
StatusOr<bool> CheckFlag(const char* field, int64_t value);
StatusOr<std::vector<int32_t>> CopyArray(const char* field, const int32_t* items, size_t count,
                                         size_t max_count);
StatusOr<std::vector<std::pair<int32_t, float>>> CopyArray(const char* field,
                                                           const pagemill_token_value* items,
                                                           size_t count, size_t max_count);
StatusOr<std::vector<float>> CopyArray(const char* field, const float* items, size_t count,
                                       size_t max_count);
void AssignValues(const std::vector<std::pair<int32_t, float>>& from,
                  std::vector<pagemill_token_value>* to);

// Without `runner`, which callback_runner.h reads.
StatusOr<HostOptions> ToHostOptions(const pagemill_engine_options& options);
// The options of the host's version over the defaults.
StatusOr<pagemill_engine_options> ReadOptions(const pagemill_engine_options* options);
// The engine's limits bound arrays before they are copied; timeouts count from now.
StatusOr<step::Request> ToRequest(const pagemill_request* request, const Host& host);
StatusOr<scheduler::InputPart> ToInputPart(int32_t part);
StatusOr<scheduler::PauseMode> ToPauseMode(int32_t mode);
// Generated from the fields' lists (cc/capi/fields); `max_entries` bounds each array.
StatusOr<step::SamplingParams> ToSamplingParams(const pagemill_sampling_params& from,
                                                size_t max_entries);
// Points into `from` and `values`.
pagemill_sampling_params FromSamplingParams(const step::SamplingParams& from,
                                            std::vector<pagemill_token_value>* values);
pagemill_stats FromStats(const engine::EngineStats& from);

}  // namespace pagemill::capi

#endif  // PAGEMILL_CC_CAPI_CONVERT_H_
