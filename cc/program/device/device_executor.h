// File: cc/program/device/device_executor.h
// Runs a program on a device with memory of its own, by enqueuing kernels on a stream, or by
// replaying graphs: decode steps are padded to the next of a few sizes, for each of which the
// kernels are recorded once.
//
//   PM_ASSIGN_OR_RETURN(std::unique_ptr<DeviceExecutor> executor,
//                       DeviceExecutor::Create(program, target, device, options,
//                                              {.max_blocks = 128, .graph_sizes = {1, 2, 4, 8}}));
//   PM_RETURN_IF_ERROR(executor->Enqueue(batch));     // returns before it is done
//   PM_RETURN_IF_ERROR(executor->Enqueue(next));      // two steps are in flight
//   PM_RETURN_IF_ERROR(executor->Collect(&output));   // waits for the first
//
// The device's memory is taken once, as planned, so that addresses stay as they are. A batch is
// copied when it is enqueued. Outputs come to the host's memory, one area for each step in flight.
//
// Ownership: keeps the program and its memory; the device outlives it. Thread safety: that of
// Executor.
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_EXECUTOR_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/device.h"
#include "cc/ops/batch_view.h"
#include "cc/program/executor.h"
#include "cc/program/executor_options.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/program.h"

namespace pagemill::program {

struct DeviceExecutorOptions {
  int32_t max_blocks = 1;           // of one request in any block table
  int32_t max_steps_in_flight = 2;  // enqueued and not collected
  // Requests of decode steps that graphs are recorded for, ascending, at most max_num_seqs,
  // max_num_tokens and max_num_logits_rows. Empty: kernels are enqueued one by one.
  std::vector<int32_t> graph_sizes = {};
};

class DeviceExecutor final : public Executor {
 public:
  // Records the graphs. kInvalidArgument names the option at fault.
  static StatusOr<std::unique_ptr<DeviceExecutor>> Create(
      Program program, const Target& target, device::Device& device, const ExecutorOptions& options,
      const DeviceExecutorOptions& device_options);
  ~DeviceExecutor() override;  // waits for steps in flight

  // kInvalidArgument where the batch is larger than the options allow, kFailedPrecondition where
  // too many steps are in flight.
  Status Enqueue(const ops::StepBatch& batch) override;
  Status Collect(ExecutorOutput* output) override;

 private:
  struct Bound;
  explicit DeviceExecutor(std::unique_ptr<Bound> bound);
  std::unique_ptr<Bound> bound_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_EXECUTOR_H_
