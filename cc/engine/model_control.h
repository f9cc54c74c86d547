// File: cc/engine/model_control.h
// Sleep, wake and weight updates of an engine: a runner's control, called at rest and in step with
// the prefix cache. Engine has methods of the same names, documented there.
//
//   ModelControl control(runner->control(), &loop, /*weights_flag=*/"");
//   PAGEMILL_RETURN_IF_ERROR(control.Sleep(KvMemory::kFree, /*timeout_s=*/10));
//
// Thread safety: all methods.
#ifndef PAGEMILL_CC_ENGINE_MODEL_CONTROL_H_
#define PAGEMILL_CC_ENGINE_MODEL_CONTROL_H_

#include <optional>
#include <string>
#include <utility>

#include "cc/base/status.h"
#include "cc/engine/runner_control.h"
#include "cc/engine/step_loop.h"

namespace pagemill::engine {

class ModelControl {
 public:
  // `control` is null if the runner offers none. `weights_flag` is
  // KvTierOptions::names_weights(). The loop outlives this object.
  ModelControl(RunnerControl* control, StepLoop* loop, std::string weights_flag)
      : control_(control), loop_(loop), weights_flag_(std::move(weights_flag)) {}

  Status Sleep(KvMemory kv, double timeout_s);
  Status Wake(double timeout_s);
  Status UpdateWeights(const WeightSources& sources, double timeout_s, NewWeights where,
                       const std::optional<std::string>& version);

 private:
  Status CheckOffered() const;

  RunnerControl* const control_;
  StepLoop* const loop_;
  const std::string weights_flag_;
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_MODEL_CONTROL_H_
