// File: cc/capi/convert.h
// Converts the structs of pagemill.h to types of the engine, and back. Rejects every invalid field
// of a host's struct, with a message, before it is used.
#ifndef PAGEMILL_CC_CAPI_CONVERT_H_
#define PAGEMILL_CC_CAPI_CONVERT_H_

#include <vector>

#include "cc/base/status.h"
#include "cc/capi/host.h"
#include "cc/capi/pagemill.h"
#include "cc/engine/engine_stats.h"
#include "cc/engine/request_output.h"
#include "cc/scheduler/input_chunk.h"
#include "cc/scheduler/pause_mode.h"
#include "cc/step/request.h"

namespace pagemill::capi {

extern const pagemill_engine_options kDefaultEngineOptions;
extern const pagemill_sampling_params kDefaultSamplingParams;
extern const pagemill_request kDefaultRequest;
extern const pagemill_output kDefaultOutput;
extern const pagemill_stats kDefaultStats;

// Sizes in the first header of this ABI version.
inline constexpr size_t kFirstOutputSize = offsetof(pagemill_output, error_message);
inline constexpr size_t kFirstStatsSize = 5 * sizeof(uint64_t);  // its size and four gauges

StatusOr<HostOptions> ToHostOptions(const pagemill_engine_options* options);
// The engine's limits bound arrays before they are copied; timeouts count from now.
StatusOr<step::Request> ToRequest(const pagemill_request* request, const Host& host);
// `field` names the array in messages.
StatusOr<std::vector<int32_t>> CopyTokens(const char* field, const int32_t* tokens, size_t count,
                                          size_t max_count);
StatusOr<scheduler::InputPart> ToInputPart(int32_t part);
StatusOr<scheduler::PauseMode> ToPauseMode(int32_t mode);
// Points into `output`.
pagemill_output FromOutput(const engine::RequestOutput& output);

// Generated from the fields' lists (cc/capi/fields); `max_entries` bounds each array.
StatusOr<step::SamplingParams> ToSamplingParams(const pagemill_sampling_params& from,
                                                size_t max_entries);
pagemill_sampling_params DefaultSamplingParams();
pagemill_stats FromStats(const engine::EngineStats& from);

}  // namespace pagemill::capi

#endif  // PAGEMILL_CC_CAPI_CONVERT_H_
