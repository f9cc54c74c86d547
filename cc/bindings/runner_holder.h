// File: cc/bindings/runner_holder.h
// A ModelRunner together with the Python object whose executor it uses.
#ifndef PAGEMILL_CC_BINDINGS_RUNNER_HOLDER_H_
#define PAGEMILL_CC_BINDINGS_RUNNER_HOLDER_H_

#include <nanobind/nanobind.h>

#include <memory>

#include "cc/runner/model_runner.h"

namespace pagemill::bindings {

struct RunnerHolder {
  nanobind::object executor;  // dies after the runner
  std::unique_ptr<runner::ModelRunner> runner;
};

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_RUNNER_HOLDER_H_
