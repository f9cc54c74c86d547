// File: cc/program/device/device_executor.h
// Runs a program on a device with its own memory, by enqueuing kernels on a stream or, for steps of
// few tokens, by replaying graphs that are recorded when steps of similar sizes come again
// (step_graphs.h).
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<DeviceExecutor> executor,
//                       DeviceExecutor::Create(program, target, device, options,
//                                              {.max_blocks = 128, .token_columns = 49152}));
//   PAGEMILL_RETURN_IF_ERROR(executor->Enqueue(batch));     // returns before the step is done
//   PAGEMILL_RETURN_IF_ERROR(executor->Enqueue(next));      // two steps are in flight
//   PAGEMILL_RETURN_IF_ERROR(executor->Collect(&output));   // waits for the first
//
// The device's memory is allocated once, as planned, so addresses are stable. A batch is copied
// when it is enqueued. Outputs are copied to host memory, one area for each step in flight. All
// copies are from and to memory of Device::AllocateHost(), so that the host waits for none. If
// tokens are chosen on the device (tokens/device_tokens.h), a batch may refer to tokens of the last
// step by row (TokenOfRow()), and a step that requests maxima copies only those. Sample() draws
// tokens after the step, or after its graph.
//
// Several programs: an executor created with a `host` enqueues its steps on the host's stream,
// among the host's, and keeps its KV in pages of the host's arena, whose blocks the scheduler
// allocates for both (a draft model).
//
// Ownership: owns the program and its memory; the device must outlive it. Thread safety: that of
// Executor; executors that share a stream are used by one thread.
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_EXECUTOR_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <span>

#include "cc/base/status.h"
#include "cc/base/xxh3.h"
#include "cc/comm/group.h"
#include "cc/device/device.h"
#include "cc/ops/batch_view.h"
#include "cc/program/adapters/adapter_weights.h"
#include "cc/program/device/device_options.h"
#include "cc/program/device/device_plan.h"
#include "cc/program/device/device_weights.h"
#include "cc/program/executor.h"
#include "cc/program/executor_options.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/program.h"
#include "cc/step/page_store.h"

namespace pagemill::program {

class DeviceExecutor final : public Executor {
 public:
  // kInvalidArgument names the invalid option, kResourceExhausted what does not fit (CheckFits()).
  // `host`, of the same device, outlives the executor, which must have as many pages, and
  // options.kv_page_bytes must be the host's: else kInvalidArgument. It is given if and only if
  // device_options.shares_kv is true.
  // With collectives it is a call of all ranks, whose errors Stream::Join() has.
  static StatusOr<std::unique_ptr<DeviceExecutor>> Create(
      Program program, const Target& target, device::Device& device, const ExecutorOptions& options,
      const DeviceExecutorOptions& device_options, const DeviceExecutor* host = nullptr);
  ~DeviceExecutor() override;  // waits for steps in flight

  // kInvalidArgument if the batch exceeds the options or reads tokens that do not exist,
  // kFailedPrecondition if too many steps are in flight.
  Status Enqueue(const ops::StepBatch& batch) override;
  Status Collect(ExecutorOutput* output) override;
  // kFailedPrecondition if there is no step to draw tokens from, kInvalidArgument if the number of
  // rows of `draws` differs or they refer to masks that `draws` lacks.
  Status Sample(const StepDraws& draws) override;

  // AdapterWeights::Make() for this program. Thread-safe, also beside UseWeights().
  StatusOr<std::shared_ptr<const AdapterWeights>> MakeAdapter(
      std::span<const AdapterWeights::Layer> layers) const;
  // Whether an adapter may have a slot (DeviceAdapters::CheckFits()). Thread-safe.
  Status CheckAdapter(const AdapterWeights& weights) const;
  // Gives a slot of options.max_adapters another adapter, or none (null), for steps that are
  // enqueued from here on (DeviceAdapters::Set()). Copies the weights.
  Status SetAdapter(int32_t slot, const AdapterWeights* weights);

  const Program& program() const;
  const KvLayout& kv_layout() const;
  const DevicePlan& plan() const;  // of its memory
  // The pages of its KV cache, thread-safe; null if it has none of its own.
  step::PageStore* pages();
  // See kv_fingerprint.h. Reads the weight files, unless their digests are known from an earlier
  // time. Thread-safe.
  Digest128 kv_fingerprint() const;
  double upload_seconds() const;   // that weights took to the device
  int64_t num_graphs() const;      // that exist now
  const comm::Groups& groups() const;  // those of the target

  // All that follow: only while no step is in flight.

  // Frees the device's memory of weights, activations and outputs, and drops the graphs, which have
  // its addresses. Until LoadWeights() steps are refused.
  void UnloadWeights();
  // Frees the KV cache, too, until LoadWeights(); then its content is undefined.
  void FreeKv();
  // The same weights again, from the files that are still mapped. `host` is that of Create() and
  // loaded; one that has none ignores it. Not OK: they are not loaded; kResourceExhausted if others
  // use the memory.
  Status LoadWeights(const DeviceExecutor* host = nullptr);

  // Other weights for this program, not uploaded: `program` is this one with other locations of
  // weights. The errors of CheckOtherWeights() and of Weights::Open().
  StatusOr<std::unique_ptr<OtherWeights>> OpenWeights(Program program) const;
  // The same, except that files which this executor has mapped are not opened again.
  StatusOr<std::unique_ptr<OtherWeights>> OpenOtherWeights(Program program) const;
  // Uploads them beside those in use: DeviceWeights::Upload().
  Status UploadBeside(OtherWeights* weights) const;
  // Or makes ready what differs from those in use: WeightChanges::Make().
  Status LoadOver(OtherWeights* weights) const;
  // Goes on with these, uploaded if and only if those in use are, and frees those; or writes what
  // differs over those in use. Not OK: the device failed, and no weights are loaded.
  Status UseWeights(std::unique_ptr<OtherWeights> weights);

 private:
  struct Bound;
  explicit DeviceExecutor(std::unique_ptr<Bound> bound);
  std::unique_ptr<Bound> bound_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_EXECUTOR_H_
