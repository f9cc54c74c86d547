// File: cc/runner/control/program_control.h
// Sleep, wake and weight updates of the programs of a runner, each on an executor of this process.
//
//   ProgramControl control({{"model", executor.get()}, {"encoder", encoder.get()}});
//   auto runner = ModelRunner::Create(executor.get(), pool, limits, {.control = &control});
//
// The first program is the host of the others (NativeExecutor::Create()). Weights that both read in
// one order are packed once, so the host loads first.
//
// An update names, for each program that gets other weights, its text with their locations
// (program/weights/other_weights.h says what may differ). Draft models keep theirs unless named:
// what a draft model proposes is verified anyway.
//
// Ownership: executors outlive this object. Thread safety: that of RunnerControl.
#ifndef PAGEMILL_CC_RUNNER_CONTROL_PROGRAM_CONTROL_H_
#define PAGEMILL_CC_RUNNER_CONTROL_PROGRAM_CONTROL_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/engine/runner_control.h"
#include "cc/program/native_executor.h"

namespace pagemill::runner {

class ProgramControl final : public engine::RunnerControl {
 public:
  struct Named {
    std::string name;
    program::NativeExecutor* executor = nullptr;
  };

  // At least one; names are unique.
  explicit ProgramControl(std::vector<Named> programs) : programs_(std::move(programs)) {}

  Status Sleep(engine::KvMemory kv) override;
  Status Wake() override;
  // kInvalidArgument for a name that is no program's, and for a text that is no program or another
  // one; kNotFound and kDataLoss of files that lack weights; kResourceExhausted if there is no room
  // for both.
  Status UpdateWeights(const engine::WeightSources& sources, engine::NewWeights where,
                       const std::function<Status()>& commit) override;

 private:
  // One per program; null: the program keeps its weights.
  using Updates = std::vector<std::unique_ptr<program::LoadedWeights>>;

  program::NativeExecutor& host() { return *programs_.front().executor; }
  void Unload();
  StatusOr<Updates> Open(const engine::WeightSources& sources, engine::NewWeights where) const;
  Status LoadBeside(Updates* updates);
  Status LoadOver(Updates* updates);

  const std::vector<Named> programs_;
  bool asleep_ = false;
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_CONTROL_PROGRAM_CONTROL_H_
