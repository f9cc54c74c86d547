#include "cc/runner/control/program_control.h"

#include <algorithm>

#include "cc/program/program.h"

namespace pagemill::runner {

using engine::KvMemory;
using engine::NewWeights;
using engine::WeightSources;
using program::LoadedWeights;
using program::NativeExecutor;
using program::Program;

Status ProgramControl::Sleep(KvMemory kv) {
  Unload();
  if (kv == KvMemory::kFree) host().FreeKv();
  asleep_ = true;
  return OkStatus();
}

// Those that read the host's weights go before it.
void ProgramControl::Unload() {
  for (auto each = programs_.rbegin(); each != programs_.rend(); ++each) {
    each->executor->UnloadWeights();
  }
}

Status ProgramControl::Wake() {
  for (const Named& each : programs_) {
    const bool is_host = each.executor == &host();
    const Status status = each.executor->LoadWeights(is_host ? nullptr : &host());
    if (status.ok()) continue;
    Unload();
    return status;
  }
  asleep_ = false;
  return OkStatus();
}

StatusOr<ProgramControl::Updates> ProgramControl::Open(const WeightSources& sources,
                                                       NewWeights where) const {
  Updates updates(programs_.size());
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
    const NativeExecutor& executor = *found->executor;
    PAGEMILL_ASSIGN_OR_RETURN(updates[static_cast<size_t>(found - programs_.begin())],
                              where == NewWeights::kOver
                                  ? executor.OpenOtherWeights(std::move(program))
                                  : executor.OpenWeights(std::move(program)));
  }
  return updates;
}

Status ProgramControl::LoadBeside(Updates* updates) {
  const bool new_host = updates->front() != nullptr;
  for (size_t i = 0; i < programs_.size(); ++i) {
    NativeExecutor& executor = *programs_[i].executor;
    std::unique_ptr<LoadedWeights>& own = (*updates)[i];
    // Copies of the host's weights go with them.
    if (own == nullptr && i > 0 && new_host && executor.packed_weights().shares()) {
      own = executor.OpenWeightsAgain();
    }
    if (own == nullptr) continue;
    const program::PackedWeights* shared = nullptr;
    if (i > 0) shared = new_host ? &updates->front()->packed() : &host().packed_weights();
    PAGEMILL_RETURN_IF_ERROR(executor.LoadBeside(own.get(), shared));
  }
  return OkStatus();
}

// Programs that read copies of the host get copies of their own: those may be written over now, and
// later.
Status ProgramControl::LoadOver(Updates* updates) {
  for (size_t i = 0; i < programs_.size(); ++i) {
    NativeExecutor& executor = *programs_[i].executor;
    std::unique_ptr<LoadedWeights>& own = (*updates)[i];
    const bool shares = executor.packed_weights().shares();
    if (own == nullptr && shares && updates->front() != nullptr) own = executor.OpenWeightsAgain();
    if (own == nullptr) continue;
    PAGEMILL_RETURN_IF_ERROR(shares ? executor.LoadBeside(own.get(), nullptr)
                                    : executor.LoadOver(own.get()));
  }
  return OkStatus();
}

Status ProgramControl::UpdateWeights(const WeightSources& sources, NewWeights where,
                                     const std::function<Status()>& commit) {
  PAGEMILL_ASSIGN_OR_RETURN(Updates updates, Open(sources, where));
  if (!asleep_) {
    PAGEMILL_RETURN_IF_ERROR(where == NewWeights::kOver ? LoadOver(&updates)
                                                        : LoadBeside(&updates));
  }
  PAGEMILL_RETURN_IF_ERROR(commit());
  // Weights of the host go last: others may read them until then.
  for (size_t i = programs_.size(); i-- > 0;) {
    if (updates[i] != nullptr) programs_[i].executor->UseWeights(std::move(updates[i]));
  }
  return OkStatus();
}

}  // namespace pagemill::runner
