// File: cc/bindings/runner_holder.h
// A ModelRunner together with the Python objects whose executors it uses.
#ifndef PAGEMILL_CC_BINDINGS_RUNNER_HOLDER_H_
#define PAGEMILL_CC_BINDINGS_RUNNER_HOLDER_H_

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "cc/base/clock.h"
#include "cc/engine/runner_control.h"
#include "cc/program/native_executor.h"
#include "cc/runner/model_runner.h"
#include "cc/runner/ranks/rank_pages.h"
#include "cc/runner/ranks/rank_steps.h"
#include "cc/runner/ranks/stage_steps.h"

namespace pagemill::bindings {

struct RunnerHolder {
  nanobind::object executor;                  // dies after the runner
  std::vector<nanobind::object> encoders;     // the same; empty: no media
  nanobind::object draft_executor;            // the same; None: no draft model
  nanobind::object adapters;                  // the same; None: no adapters
  program::NativeExecutor* native = nullptr;  // it, if it is one
  std::unique_ptr<runner::StagedExecutor> staged =
      nullptr;  // around it, if it is the last stage of several
  std::unique_ptr<runner::LeadingPages> pages = nullptr;  // of all ranks, if they are copied
  std::unique_ptr<runner::LeadingExecutor> leading =
      nullptr;  // around them, if it is rank 0 of a group that divides its layers
  std::unique_ptr<engine::RunnerControl> control = nullptr;  // of all its programs
  std::unique_ptr<SteadyClock> clock = nullptr;               // of the draft model
  std::unique_ptr<runner::ModelRunner> runner;

  // For the garbage collector (collectable.h). The runner needs its executors to the end.
  int Visit(visitproc visit, void* arg) {
    Py_VISIT(executor.ptr());
    for (const nanobind::object& encoder : encoders) Py_VISIT(encoder.ptr());
    Py_VISIT(draft_executor.ptr());
    Py_VISIT(adapters.ptr());
    return 0;
  }
  void Forget() {}
};

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_RUNNER_HOLDER_H_
