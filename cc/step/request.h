// File: cc/step/request.h
// A request as it enters the engine. Immutable after submission; its progress is the scheduler's.
#ifndef PAGEMILL_CC_STEP_REQUEST_H_
#define PAGEMILL_CC_STEP_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/strong_id.h"
#include "cc/step/sampling_params.h"

namespace pagemill::step {

// Unique among the requests alive in one engine; chosen by the submitter.
using RequestId = StrongId<struct RequestIdTag, uint64_t>;
// A running request's slot in the batch state, in [0, max_num_seqs); reused after it is released.
using RequestIndex = StrongId<struct RequestIndexTag, int32_t>;
// A page of the KV pool; 0 is the null block.
using BlockId = StrongId<struct BlockIdTag, int32_t>;

inline constexpr BlockId kNullBlock{0};

// Present on a request for a pooled output (embedding) instead of generated tokens. The pooling
// itself is the program's tail.
struct PoolingParams {};

struct Request {
  RequestId id;
  std::vector<int32_t> prompt_token_ids;  // not empty
  SamplingParams sampling;                // ignored where `pooling` is set
  std::optional<PoolingParams> pooling;
  int32_t priority = 0;    // lower runs earlier; needs the priority policy
  std::string cache_salt;  // separates prefix-cache namespaces; empty = shared
  bool skip_reading_prefix_cache = false;
};

}  // namespace pagemill::step

#endif  // PAGEMILL_CC_STEP_REQUEST_H_
