// File: cc/capi/calls.h
// What every function of the C ABI does around its work: errors and exceptions become statuses with
// a message, and calls by the engine's own callbacks are refused, since they would wait for
// themselves.
//
//   pagemill_status pagemill_engine_resume(pagemill_engine* engine) {
//     return WithEngine(engine, [](engine::Engine& e) {
//       e.Resume();
//       return OkStatus();
//     });
//   }
#ifndef PAGEMILL_CC_CAPI_CALLS_H_
#define PAGEMILL_CC_CAPI_CALLS_H_

#include <deque>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "cc/base/status.h"
#include "cc/capi/host.h"
#include "cc/capi/kv_event_view.h"
#include "cc/capi/output_view.h"
#include "cc/capi/pagemill.h"
#include "cc/engine/engine.h"

struct pagemill_engine {
  std::unique_ptr<pagemill::capi::Host> host;
  // Read from the engine, not yet returned to the host.
  std::deque<pagemill::engine::RequestOutput> ready = {};
  pagemill::capi::OutputView current = {};     // memory that `pagemill_output` points into
  pagemill::capi::KvEventView kv_events = {};  // likewise of `pagemill_kv_events`
};

namespace pagemill::capi {

// The message of the thread's last failed call.
std::string& LastError();

// While one lives, the thread runs a function of the host.
class CallbackScope {
 public:
  CallbackScope();
  ~CallbackScope();
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;
  static bool active();
};

inline pagemill_status Report(const Status& status) {
  if (!status.ok()) LastError() = status.message();
  return static_cast<pagemill_status>(status.code());
}

// Runs `body`, which returns a Status, and converts exceptions to statuses.
template <typename Body>
pagemill_status Guard(Body&& body) noexcept {
  try {
    try {
      return Report(body());
    } catch (const std::bad_alloc&) {
      return Report(ResourceExhausted("out of memory"));
    } catch (const std::exception& e) {
      return Report(Internal(e.what()));
    }
  } catch (...) {  // there was no memory for the message
    return PAGEMILL_RESOURCE_EXHAUSTED;
  }
}

// OK unless a callback is running on this thread.
inline Status CheckNoCallback() {
  if (!CallbackScope::active()) return OkStatus();
  return FailedPrecondition(
      "called by a callback (log function, logits processor, runner): let another thread call the "
      "engine");
}

// Likewise for a body that receives the engine of `handle`.
template <typename Body>
pagemill_status WithEngine(const pagemill_engine* handle, Body&& body) noexcept {
  return Guard([&]() -> Status {
    PAGEMILL_RETURN_IF_ERROR(CheckNoCallback());
    if (handle == nullptr) return InvalidArgument("engine is NULL");
    return body(handle->host->engine());
  });
}

// Runs a function of the host, which returns a pagemill_status; `name` begins messages.
template <typename Function>
Status CallHost(const char* name, Function&& function) {
  const CallbackScope scope;
  LastError().clear();
  int32_t code = PAGEMILL_INTERNAL;
  try {
    code = static_cast<int32_t>(function());
  } catch (...) {
    return Internal(std::string(name) + " threw an exception");
  }
  if (code == PAGEMILL_OK) return OkStatus();
  if (code < PAGEMILL_OK || code > PAGEMILL_DATA_LOSS) {
    return Internal(std::string(name) + " returned " + std::to_string(code) +
                    ", which is no pagemill_status");
  }
  const std::string& message = LastError();
  return {static_cast<StatusCode>(code), message.empty() ? std::string(name) + " failed" : message};
}

}  // namespace pagemill::capi

#endif  // PAGEMILL_CC_CAPI_CALLS_H_
