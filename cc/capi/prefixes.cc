// Cached prefixes that outlive their requests: pins, KV events and saved sessions.
#include <algorithm>
#include <string>
#include <utility>

#include "cc/capi/calls.h"
#include "cc/capi/convert.h"
#include "cc/capi/pagemill.h"
#include "cc/capi/versioned.h"
#include "cc/engine/engine.h"

namespace {

using pagemill::InvalidArgument;
using pagemill::OkStatus;
using pagemill::Status;
using pagemill::capi::WithEngine;
using pagemill::engine::Engine;
using pagemill::kv_cache::PinId;
namespace capi = pagemill::capi;

}  // namespace

pagemill_status pagemill_engine_pin_prefix(pagemill_engine* engine, const pagemill_request* like,
                                           uint64_t* pin, int32_t* num_tokens) {
  return WithEngine(engine, [&](Engine& e) -> Status {
    if (pin == nullptr || num_tokens == nullptr) {
      return InvalidArgument("pin or num_tokens is NULL");
    }
    PAGEMILL_ASSIGN_OR_RETURN(const pagemill::step::Request request,
                              capi::ToRequest(like, *engine->host));
    PAGEMILL_ASSIGN_OR_RETURN(const pagemill::kv_cache::PinnedPrefix pinned, e.PinPrefix(request));
    *pin = pinned.id.value();
    *num_tokens = pinned.num_tokens;
    return OkStatus();
  });
}

pagemill_status pagemill_engine_unpin_prefix(pagemill_engine* engine, uint64_t pin) {
  return WithEngine(engine, [&](Engine& e) -> Status {
    if (e.UnpinPrefix(PinId(pin))) return OkStatus();
    return pagemill::NotFound("there is no pin " + std::to_string(pin));
  });
}

pagemill_status pagemill_engine_kv_events(pagemill_engine* engine, uint64_t sequence,
                                          pagemill_kv_events* events) {
  return WithEngine(engine, [&](Engine& e) -> Status {
    PAGEMILL_RETURN_IF_ERROR(capi::CheckSize("events", events, capi::kFirstKvEventsSize));
    PAGEMILL_ASSIGN_OR_RETURN(pagemill::engine::KvEventBatch batch, e.KvEvents(sequence));
    engine->kv_events = capi::KvEventView(std::move(batch));
    capi::CopyOut(engine->kv_events.ToC(), events);
    return OkStatus();
  });
}

pagemill_status pagemill_engine_save_session(pagemill_engine* engine, const char* path,
                                             const pagemill_request* like, int32_t* num_tokens) {
  return WithEngine(engine, [&](Engine& e) -> Status {
    if (num_tokens == nullptr) return InvalidArgument("num_tokens is NULL");
    PAGEMILL_ASSIGN_OR_RETURN(const std::string file,
                              capi::CopyString("path", path, capi::kMaxPathBytes));
    PAGEMILL_ASSIGN_OR_RETURN(pagemill::step::Request request,
                              capi::ToRequest(like, *engine->host));
    PAGEMILL_ASSIGN_OR_RETURN(*num_tokens, e.SaveSession(file, std::move(request)));
    return OkStatus();
  });
}

pagemill_status pagemill_engine_restore_session(pagemill_engine* engine, const char* path,
                                                const pagemill_request* like, int32_t* token_ids,
                                                size_t capacity, size_t* num_tokens,
                                                int32_t* num_cached_tokens) {
  return WithEngine(engine, [&](Engine& e) -> Status {
    if (num_tokens == nullptr || num_cached_tokens == nullptr) {
      return InvalidArgument("num_tokens or num_cached_tokens is NULL");
    }
    if (token_ids == nullptr && capacity > 0) return InvalidArgument("token_ids is NULL");
    PAGEMILL_ASSIGN_OR_RETURN(const std::string file,
                              capi::CopyString("path", path, capi::kMaxPathBytes));
    pagemill::step::Request request;
    if (like != nullptr) {
      PAGEMILL_ASSIGN_OR_RETURN(request, capi::ToRequest(like, *engine->host));
    }
    PAGEMILL_ASSIGN_OR_RETURN(const pagemill::engine::RestoredSession session,
                              e.RestoreSession(file, std::move(request)));
    *num_tokens = session.token_ids.size();
    *num_cached_tokens = session.num_cached_tokens;
    if (session.token_ids.size() > capacity) {
      return pagemill::ResourceExhausted("the session has " + std::to_string(*num_tokens) +
                                         " tokens; token_ids has room for " +
                                         std::to_string(capacity));
    }
    std::copy(session.token_ids.begin(), session.token_ids.end(), token_ids);
    return OkStatus();
  });
}
