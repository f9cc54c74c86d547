// File: cc/scheduler/admission/admission.h
// Can a request ever run here? Decided from the request and the limits alone, before it is queued,
// so that an impossible request is refused at once and with a sentence that names the limit and its
// flag.
//
//   Admission admission(options);
//   PAGEMILL_RETURN_IF_ERROR(admission.Check(request));
//
// Thread safety: immutable.
#ifndef PAGEMILL_CC_SCHEDULER_ADMISSION_ADMISSION_H_
#define PAGEMILL_CC_SCHEDULER_ADMISSION_ADMISSION_H_

#include <cstdint>
#include <span>
#include <string>

#include "cc/base/status.h"
#include "cc/kv_cache/kv_cache_manager.h"
#include "cc/scheduler/scheduler_options.h"
#include "cc/step/request.h"

namespace pagemill::scheduler {

class Admission {
 public:
  // `options` are valid. `cache` is only asked for its shape, now.
  Admission(const SchedulerOptions& options, const kv_cache::KvCacheManager& cache);

  // kInvalidArgument: the client must change the request. kUnimplemented: not with this model.
  Status Check(const step::Request& request) const;

  // Input that is to follow the first `first_token` tokens of a request that was admitted.
  struct Chunk {
    std::span<const int32_t> token_ids;
    std::span<const step::MediaItem> media;  // their positions count from the first of these tokens
    int32_t first_token = 0;
  };
  // The same, of the request with this input. O(the chunk).
  Status CheckChunk(const step::Request& request, const Chunk& chunk) const;

  // Tokens at which a request ends with "length": max_model_len, or less if the whole KV pool
  // holds less than that.
  int32_t max_request_tokens() const { return max_request_tokens_; }

 private:
  Status CheckKind(const step::Request& request) const;
  Status CheckStreaming(const step::Request& request) const;
  Status CheckTokens(const Chunk& chunk) const;
  Status CheckLength(const step::Request& request, int64_t num_prompt_tokens) const;
  Status CheckUncut(const step::Request& request) const;
  Status CheckMedia(const step::Request& request) const;
  Status CheckItems(const Chunk& chunk, size_t num_items_before) const;
  Status CheckMediaItem(const step::MediaItem& item, const std::string& name) const;

  SchedulerOptions options_;
  bool uses_priority_;
  int32_t max_request_tokens_;
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_ADMISSION_ADMISSION_H_
