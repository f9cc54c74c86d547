// File: cc/runner/control/device_control.h
// Sleep, wake and weight updates of the programs of a runner on a device.
//
//   DeviceControl control({{"model", executor.get()}, {"draft", draft.get()}});
//   auto runner = ModelRunner::Create(executor.get(), pool, limits, {.control = &control});
//
// The first program is the host of those that share its KV cache (DeviceExecutor::Create()). Files of weights stay
// mapped in between: the device's memory is freed, and filled from them again. Addresses change
// then, so graphs are recorded anew. An update needs room for both the old and the new weights.
//
// Ownership: executors outlive this object. Thread safety: that of RunnerControl.
#ifndef PAGEMILL_CC_RUNNER_CONTROL_DEVICE_CONTROL_H_
#define PAGEMILL_CC_RUNNER_CONTROL_DEVICE_CONTROL_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/engine/runner_control.h"
#include "cc/program/device/device_executor.h"

namespace pagemill::runner {

class DeviceControl final : public engine::RunnerControl {
 public:
  struct Named {
    std::string name;
    program::DeviceExecutor* executor = nullptr;
  };

  // At least one; names are unique.
  explicit DeviceControl(std::vector<Named> programs) : programs_(std::move(programs)) {}

  Status Sleep(engine::KvMemory kv) override;
  // kResourceExhausted if others use the device's memory.
  Status Wake() override;
  // As ProgramControl::UpdateWeights(). A device that fails while weights are written over others
  // leaves no weights in memory.
  Status UpdateWeights(const engine::WeightSources& sources, engine::NewWeights where,
                       const std::function<Status()>& commit) override;

 private:
  program::DeviceExecutor& host() { return *programs_.front().executor; }
  void Unload();

  const std::vector<Named> programs_;
  bool asleep_ = false;
  bool kv_freed_ = false;  // when it fell asleep
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_CONTROL_DEVICE_CONTROL_H_
