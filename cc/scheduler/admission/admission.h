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

  // Tokens at which a request ends with "length": max_model_len, or less where the whole KV pool
  // holds less than that.
  int32_t max_request_tokens() const { return max_request_tokens_; }

 private:
  Status CheckKind(const step::Request& request) const;
  Status CheckStreaming(const step::Request& request) const;
  Status CheckTokens(const step::Request& request) const;
  Status CheckLength(const step::Request& request) const;
  Status CheckUncut(const step::Request& request) const;
  Status CheckMedia(const step::Request& request) const;
  Status CheckMediaItem(const step::MediaItem& item, const std::string& name) const;

  SchedulerOptions options_;
  bool uses_priority_;
  int32_t max_request_tokens_;
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_ADMISSION_ADMISSION_H_
