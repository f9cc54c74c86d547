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
// tokens are chosen on the device (device_tokens.h), a batch may refer to tokens of the previous
// step by row (TokenOfRow()), and a step that requests maxima copies only those. Sample() draws
// tokens after the step, or after its graph.
//
// Ownership: owns the program and its memory; the device must outlive it. Thread safety: that of
// Executor.
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_EXECUTOR_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_EXECUTOR_H_

#include <cstdint>
#include <memory>

#include "cc/base/status.h"
#include "cc/comm/group.h"
#include "cc/device/device.h"
#include "cc/ops/batch_view.h"
#include "cc/program/device/device_options.h"
#include "cc/program/device/device_plan.h"
#include "cc/program/executor.h"
#include "cc/program/executor_options.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/program.h"

namespace pagemill::program {

class DeviceExecutor final : public Executor {
 public:
  // kInvalidArgument names the invalid option, kResourceExhausted what does not fit (CheckFits()).
  // With collectives it is a call of all ranks, whose errors Stream::Join() has.
  static StatusOr<std::unique_ptr<DeviceExecutor>> Create(
      Program program, const Target& target, device::Device& device, const ExecutorOptions& options,
      const DeviceExecutorOptions& device_options);
  ~DeviceExecutor() override;  // waits for steps in flight

  // kInvalidArgument if the batch exceeds the options or reads tokens that do not exist,
  // kFailedPrecondition if too many steps are in flight.
  Status Enqueue(const ops::StepBatch& batch) override;
  Status Collect(ExecutorOutput* output) override;
  // kFailedPrecondition if there is no step to draw tokens from, kInvalidArgument if the number of
  // rows of `draws` differs or they refer to masks that `draws` lacks.
  Status Sample(const StepDraws& draws) override;

  const Program& program() const;
  const KvLayout& kv_layout() const;
  const DevicePlan& plan() const;  // of its memory
  double upload_seconds() const;   // that weights took to the device
  int64_t num_graphs() const;      // that exist now
  const comm::Groups& groups() const;  // those of the target

 private:
  struct Bound;
  explicit DeviceExecutor(std::unique_ptr<Bound> bound);
  std::unique_ptr<Bound> bound_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_EXECUTOR_H_
