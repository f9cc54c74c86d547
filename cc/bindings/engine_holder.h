// File: cc/bindings/engine_holder.h
// An engine together with the Python objects that it uses: its runner and its log function. The
// engine's thread is joined without the GIL, which it may be waiting for.
#ifndef PAGEMILL_CC_BINDINGS_ENGINE_HOLDER_H_
#define PAGEMILL_CC_BINDINGS_ENGINE_HOLDER_H_

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <string_view>

#include "cc/base/clock.h"
#include "cc/base/log_sink.h"
#include "cc/bindings/engine_profile.h"
#include "cc/engine/engine.h"

namespace pagemill::bindings {

class EngineHolder {
 public:
  // `runner` is a ModelRunner, `log` None or callable(severity: str, line: str). Throws
  // StatusException.
  EngineHolder(nanobind::object runner, nanobind::object log, const engine::EngineOptions& options);
  ~EngineHolder();
  EngineHolder(const EngineHolder&) = delete;
  EngineHolder& operator=(const EngineHolder&) = delete;

  engine::Engine& engine() { return *engine_; }
  EngineProfile& profile() { return *profile_; }

  // For the garbage collector (collectable.h). After Forget() log lines are dropped.
  int Visit(visitproc visit, void* arg);
  void Forget() { log_ = nanobind::none(); }

 private:
  // Called from the engine's thread; what the function raises is reported and dropped.
  void Log(LogSeverity severity, std::string_view line);

  nanobind::object runner_;
  nanobind::object log_;
  SteadyClock clock_;
  std::optional<EngineProfile> profile_;    // of the engine
  std::unique_ptr<engine::Engine> engine_;  // dies first
};

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_ENGINE_HOLDER_H_
