#include "cc/runner/control/device_control.h"

#include <algorithm>
#include <memory>

#include "cc/program/program.h"

namespace pagemill::runner {

using engine::KvMemory;
using engine::NewWeights;
using program::OtherWeights;
using program::Program;

Status DeviceControl::Sleep(KvMemory kv) {
  Unload();
  if (kv == KvMemory::kFree) {
    host().FreeKv();
    kv_freed_ = true;
  }
  asleep_ = true;
  return OkStatus();
}

void DeviceControl::Unload() {
  for (const Named& each : programs_) each.executor->UnloadWeights();
}

Status DeviceControl::Wake() {
  for (const Named& each : programs_) {
    const Status status = each.executor->LoadWeights(&host());
    if (status.ok()) continue;
    Unload();
    if (kv_freed_) host().FreeKv();  // which programs before this one may have taken
    return status;
  }
  asleep_ = kv_freed_ = false;
  return OkStatus();
}

Status DeviceControl::UpdateWeights(const engine::WeightSources& sources, NewWeights where,
                                    const std::function<Status()>& commit) {
  const bool over = where == NewWeights::kOver;
  std::vector<std::pair<program::DeviceExecutor*, std::unique_ptr<OtherWeights>>> updates;
  for (const auto& [name, text] : sources) {
    const auto found = std::find_if(programs_.begin(), programs_.end(),
                                    [&name](const Named& each) { return each.name == name; });
    if (found == programs_.end()) {
      std::string names;
      for (const Named& each : programs_) names += " " + each.name;
      return InvalidArgument("there is no program '" + name + "' that could get weights, only" +
                             names);
    }
    PAGEMILL_ASSIGN_OR_RETURN(Program program, Program::Parse(text));
    PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<OtherWeights> opened,
                              over ? found->executor->OpenOtherWeights(std::move(program))
                                   : found->executor->OpenWeights(std::move(program)));
    updates.emplace_back(found->executor, std::move(opened));
  }
  for (auto& [executor, weights] : updates) {
    if (asleep_) continue;
    PAGEMILL_RETURN_IF_ERROR(over ? executor->LoadOver(weights.get())
                                  : executor->UploadBeside(weights.get()));
  }
  PAGEMILL_RETURN_IF_ERROR(commit());
  for (auto& [executor, weights] : updates) {
    const Status status = executor->UseWeights(std::move(weights));
    if (status.ok()) continue;
    Unload();  // the device has failed: Wake() loads what all programs have now
    asleep_ = true;
    return status;
  }
  return OkStatus();
}

}  // namespace pagemill::runner
