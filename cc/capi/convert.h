// File: cc/capi/convert.h
// The structs of pagemill.h as types of the engine, and back. Everything that a host can get wrong
// about a struct is refused here, in a sentence, before it is used.
#ifndef PAGEMILL_CC_CAPI_CONVERT_H_
#define PAGEMILL_CC_CAPI_CONVERT_H_

#include "cc/base/status.h"
#include "cc/capi/host.h"
#include "cc/capi/pagemill.h"
#include "cc/engine/engine_stats.h"
#include "cc/engine/request_output.h"
#include "cc/step/request.h"

namespace pagemill::capi {

extern const pagemill_engine_options kDefaultEngineOptions;
extern const pagemill_sampling_params kDefaultSamplingParams;
extern const pagemill_request kDefaultRequest;
extern const pagemill_output kDefaultOutput;
extern const pagemill_stats kDefaultStats;

// Sizes in the first header of this ABI version.
inline constexpr size_t kFirstOutputSize = offsetof(pagemill_output, error_message);
inline constexpr size_t kFirstStatsSize = offsetof(pagemill_stats, num_unread_outputs);

StatusOr<HostOptions> ToHostOptions(const pagemill_engine_options* options);
// `max_model_len` and `vocab_size` of the engine bound the arrays before they are copied.
StatusOr<step::Request> ToRequest(const pagemill_request* request, int32_t max_model_len,
                                  int32_t vocab_size);
// Points into `output`.
pagemill_output FromOutput(const engine::RequestOutput& output);
pagemill_stats FromStats(const engine::EngineStats& stats);

}  // namespace pagemill::capi

#endif  // PAGEMILL_CC_CAPI_CONVERT_H_
