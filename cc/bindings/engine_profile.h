// File: cc/bindings/engine_profile.h
// A profile of an engine's steps: the engine's thread and the native executors of its runner record
// on one timeline, which becomes a file.
//
// Thread safety: all methods, without the GIL.
#ifndef PAGEMILL_CC_BINDINGS_ENGINE_PROFILE_H_
#define PAGEMILL_CC_BINDINGS_ENGINE_PROFILE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/clock.h"
#include "cc/base/status.h"
#include "cc/base/timeline.h"
#include "cc/engine/engine.h"
#include "cc/program/native_executor.h"

namespace pagemill::bindings {

class EngineProfile {
 public:
  // Executors, and where their ops are shown.
  using Executors = std::vector<std::pair<program::NativeExecutor*, Timeline::Track>>;
  struct Result {
    std::string path;
    int64_t num_events = 0;
    int64_t num_steps = 0;
    bool complete = true;  // false: a bound ended it
  };

  // The engine and the executors outlive the profile.
  EngineProfile(engine::Engine* engine, Executors executors)
      : engine_(engine), executors_(std::move(executors)) {}
  ~EngineProfile();  // after the engine's shutdown
  EngineProfile(const EngineProfile&) = delete;
  EngineProfile& operator=(const EngineProfile&) = delete;

  // Begins one that Stop() writes to `path`. kFailedPrecondition if one has begun.
  Status Start(const TimelineOptions& options, std::string path);
  // kFailedPrecondition if none has begun; it has ended, even if its file cannot be written.
  StatusOr<Result> Stop();

 private:
  Status Attach(const std::shared_ptr<Timeline>& timeline);

  engine::Engine* const engine_;
  const Executors executors_;
  const SteadyClock clock_;
  std::mutex mutex_;
  std::shared_ptr<Timeline> timeline_;  // null: none
  std::string path_;
};

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_ENGINE_PROFILE_H_
