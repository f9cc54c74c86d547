// File: cc/engine/runner_control.h
// What a runner may offer besides steps: to free the memory of its weights and KV and to take it
// again, and to continue with other weights of the same model. Implemented by
// cc/runner/control (program_control.h, device_control.h), for several ranks by
// cc/runner/ranks/rank_control.h, and by the fake in testing/fake_runner_control.h.
//
//   PAGEMILL_RETURN_IF_ERROR(control->Sleep(KvMemory::kFree));   // few bytes are left
//   PAGEMILL_RETURN_IF_ERROR(control->Wake());                   // steps may run again
#ifndef PAGEMILL_CC_ENGINE_RUNNER_CONTROL_H_
#define PAGEMILL_CC_ENGINE_RUNNER_CONTROL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "cc/base/status.h"

namespace pagemill::engine {

// What becomes of the KV pages while the runner sleeps.
enum class KvMemory : uint8_t {
  kKeep,  // they stay in memory as they are
  kFree,  // their memory returns to the system; their contents are lost
};

// Where other weights lie: for each program of the runner that gets some, its name ("model",
// "encoder", "draft") and a text that says it. ModelRunner takes the text of the program itself,
// with other locations of weights (docs/program_format.md).
using WeightSources = std::map<std::string, std::string>;

// Where new weights are while the old ones are still needed.
enum class NewWeights : uint8_t {
  // All of them beside the old ones. They may be kept for the next start, in the pack cache.
  kBeside,
  // Those whose place is another one than the old ones' beside them, until they are written over
  // them; others stay. Files of paths that the old ones have are not opened again. For weights that
  // come often, in parts.
  kOver,
};

// Obligations of an implementer:
// 1. Sleep() frees the memory of the weights, and of KV as `kv` says. On a runner that sleeps it
//    may free more. Not OK: the runner is as it was before.
// 2. Wake() makes the runner fit to run steps, with the weights that it had. KV that was kept is
//    what it was. Not OK: it sleeps, and may be woken again.
// 3. UpdateWeights() checks all of `sources`, then makes the new weights ready, in the memory that
//    `where` says, then calls `commit`, once, and if that is OK takes the new weights, from which
//    point on only its device can fail. Not OK: nothing has changed, and the message names the
//    first tensor that does not fit; or the device has failed, and the runner sleeps. A runner that
//    sleeps goes on sleeping, and Wake() loads the new weights.
//
// Thread safety: all are called by the engine's thread, while no step is in flight.
class RunnerControl {
 public:
  virtual ~RunnerControl() = default;
  virtual Status Sleep(KvMemory kv) = 0;
  virtual Status Wake() = 0;
  virtual Status UpdateWeights(const WeightSources& sources, NewWeights where,
                               const std::function<Status()>& commit) = 0;
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_RUNNER_CONTROL_H_
