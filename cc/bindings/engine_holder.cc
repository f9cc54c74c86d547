#include "cc/bindings/engine_holder.h"

#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "cc/bindings/runner_holder.h"
#include "cc/bindings/status_error.h"

namespace pagemill::bindings {

namespace nb = nanobind;

namespace {

EngineProfile::Executors NativeExecutors(const RunnerHolder& runner) {
  EngineProfile::Executors found;
  const auto add = [&found](const nb::object& executor, Timeline::Track track) {
    if (!nb::isinstance<program::NativeExecutor>(executor)) return;
    found.emplace_back(&nb::cast<program::NativeExecutor&>(executor), track);
  };
  add(runner.executor, Timeline::Track::kModel);
  add(runner.draft_executor, Timeline::Track::kDraftModel);
  for (const nb::object& encoder : runner.encoders) add(encoder, Timeline::Track::kEncoder);
  return found;
}

}  // namespace

EngineHolder::EngineHolder(nb::object runner, nb::object log, const engine::EngineOptions& options)
    : runner_(std::move(runner)), log_(std::move(log)) {
  RunnerHolder& holder = nb::cast<RunnerHolder&>(runner_);
  LogSink sink;
  if (!log_.is_none()) {
    sink = [this](LogSeverity severity, std::string_view line) { Log(severity, line); };
  }
  EngineProfile::Executors executors = NativeExecutors(holder);
  nb::gil_scoped_release release;
  engine_ =
      ValueOrThrow(engine::Engine::Create(options, holder.runner.get(), &clock_, std::move(sink)));
  profile_.emplace(engine_.get(), std::move(executors));
}

EngineHolder::~EngineHolder() {
  nb::gil_scoped_release release;
  engine_.reset();
}

int EngineHolder::Visit(visitproc visit, void* arg) {
  Py_VISIT(runner_.ptr());
  Py_VISIT(log_.ptr());
  return 0;
}

void EngineHolder::Log(LogSeverity severity, std::string_view line) {
  static constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
  nb::gil_scoped_acquire gil;
  if (log_.is_none()) return;
  try {
    log_(kNames[static_cast<int>(severity)], std::string(line));
  } catch (nb::python_error& e) {
    e.discard_as_unraisable("the engine's log function");
  }
}

}  // namespace pagemill::bindings
