// File: cc/capi/callback_runner.h
// A Runner that calls the functions of a host: pagemill_runner.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<engine::Runner> runner,
//                             MakeCallbackRunner(*options.runner, &host_options));
//
// A function's status becomes the step's, with the message that it left in LastError(). What it
// throws is caught. What it reports is checked by the scheduler, as any runner's result is.
//
// Thread safety: that of Runner.
#ifndef PAGEMILL_CC_CAPI_CALLBACK_RUNNER_H_
#define PAGEMILL_CC_CAPI_CALLBACK_RUNNER_H_

#include <memory>

#include "cc/base/status.h"
#include "cc/capi/host.h"
#include "cc/capi/pagemill.h"
#include "cc/engine/runner.h"
#include "cc/step/step_result.h"

// The results of the step whose collect runs.
struct pagemill_step_result {
  pagemill::step::StepResult result = {};
  const pagemill_step* step = nullptr;  // null: no collect runs
  size_t max_entries = 0;               // of each array of a result
};

namespace pagemill::capi {

// Limits come from `options`, which receives the fingerprint. kInvalidArgument names the function
// or field that is missing or wrong.
StatusOr<std::unique_ptr<engine::Runner>> MakeCallbackRunner(const pagemill_runner* runner,
                                                             HostOptions* options);

// pagemill_step_result_add().
Status AddResult(pagemill_step_result* to, const pagemill_request_result* result);

}  // namespace pagemill::capi

#endif  // PAGEMILL_CC_CAPI_CALLBACK_RUNNER_H_
