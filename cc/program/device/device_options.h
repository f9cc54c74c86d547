// File: cc/program/device/device_options.h
// Options of a program on a device, beside those of every executor.
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_OPTIONS_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_OPTIONS_H_

#include <cstdint>
#include <functional>

#include "cc/base/status.h"

namespace pagemill::program {

// How weights go to the device.
struct UploadOptions {
  int64_t buffer_bytes = int64_t{32} << 20;  // of each of the two that they go through
  // At least so much of the weights stays in the host's memory, from where kernels read it
  // (weight_arena.h says which).
  int64_t offload_bytes = 0;
  // Called while they are sent, in ascending order.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> on_progress = nullptr;
};

struct DeviceExecutorOptions {
  int32_t max_blocks = 1;           // of one request in any block table
  int32_t max_steps_in_flight = 2;  // enqueued and not collected
  // Steps of at most this many tokens are replayed from graphs (step_graphs.h); kernels of larger
  // ones are enqueued one by one. 0: no graphs.
  int32_t max_graph_tokens = 256;
  int32_t max_graphs = 48;  // kept at the same time
  // The number of leading logits columns that are tokens; batches that request maxima have it as
  // argmax_columns. 0: no tokens are chosen on the device, so each step supplies all of its own.
  int32_t token_columns = 0;
  // Each of ExecutorOptions::max_adapters slots has room for an adapter of this rank in all layers.
  int32_t max_adapter_rank = 16;
  // True: the KV cache lies in pages of another executor's arena (DeviceExecutor::Create()).
  bool shares_kv = false;
  // Memory that other ranks write to, if the program has collectives; the same on all ranks.
  int64_t exchange_bytes = int64_t{16} << 20;
  UploadOptions upload = {};

  // kInvalidArgument names the field, its value and its range.
  Status Validate() const;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_OPTIONS_H_
