// Drain, pause, sleep, weights and resets of the prefix cache.
#include "cc/capi/calls.h"
#include "cc/capi/convert.h"
#include "cc/capi/pagemill.h"
#include "cc/engine/engine.h"

namespace {

using pagemill::OkStatus;
using pagemill::Status;
using pagemill::StatusCode;
using pagemill::capi::WithEngine;
using pagemill::engine::Engine;
namespace capi = pagemill::capi;

}  // namespace

pagemill_status pagemill_engine_drain(pagemill_engine* engine) {
  return WithEngine(engine, [](Engine& e) {
    e.Drain();
    return OkStatus();
  });
}

pagemill_status pagemill_engine_wait_idle(pagemill_engine* engine, double timeout_s) {
  return WithEngine(engine, [&](Engine& e) -> Status {
    if (e.WaitIdle(timeout_s)) return OkStatus();
    return {StatusCode::kDeadlineExceeded, "requests are unfinished after the timeout"};
  });
}

pagemill_status pagemill_engine_pause(pagemill_engine* engine, int32_t mode) {
  return WithEngine(engine, [&](Engine& e) -> Status {
    PAGEMILL_ASSIGN_OR_RETURN(const pagemill::scheduler::PauseMode pause, capi::ToPauseMode(mode));
    e.Pause(pause);
    return OkStatus();
  });
}

pagemill_status pagemill_engine_wait_paused(pagemill_engine* engine, double timeout_s) {
  return WithEngine(engine, [&](Engine& e) -> Status {
    if (e.WaitPaused(timeout_s)) return OkStatus();
    return {StatusCode::kDeadlineExceeded, "the pause is not complete after the timeout"};
  });
}

pagemill_status pagemill_engine_resume(pagemill_engine* engine) {
  return WithEngine(engine, [](Engine& e) {
    e.Resume();
    return OkStatus();
  });
}

pagemill_status pagemill_engine_reset_prefix_cache(pagemill_engine* engine) {
  return WithEngine(engine, [](Engine& e) -> Status {
    if (e.ResetPrefixCache()) return OkStatus();
    return pagemill::FailedPrecondition("requests hold blocks of the KV cache");
  });
}

pagemill_status pagemill_engine_preempt_and_reset_prefix_cache(pagemill_engine* engine) {
  return WithEngine(engine, [](Engine& e) -> Status {
    if (e.ResetPrefixCache(/*preempt_running=*/true)) return OkStatus();
    return pagemill::FailedPrecondition("blocks of the KV cache are being loaded");
  });
}

pagemill_status pagemill_engine_sleep(pagemill_engine* engine, int32_t free_kv, double timeout_s) {
  return WithEngine(engine, [&](Engine& e) -> Status {
    PAGEMILL_ASSIGN_OR_RETURN(const bool frees, capi::CheckFlag("free_kv", free_kv));
    using pagemill::engine::KvMemory;
    return e.Sleep(frees ? KvMemory::kFree : KvMemory::kKeep, timeout_s);
  });
}

pagemill_status pagemill_engine_wake(pagemill_engine* engine, double timeout_s) {
  return WithEngine(engine, [&](Engine& e) { return e.Wake(timeout_s); });
}

pagemill_status pagemill_engine_update_weights(pagemill_engine* engine, const char* program_path,
                                               double timeout_s) {
  return WithEngine(engine, [&](Engine&) -> Status {
    PAGEMILL_ASSIGN_OR_RETURN(const std::string path,
                              capi::CopyString("program_path", program_path, capi::kMaxPathBytes));
    return engine->host->UpdateWeights(path, timeout_s);
  });
}
