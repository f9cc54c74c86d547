#include "cc/program/device/device_options.h"

#include <string>

namespace pagemill::program {

Status DeviceExecutorOptions::Validate() const {
  const auto check = [](const char* name, int64_t value, int64_t least) {
    if (value >= least) return OkStatus();
    return InvalidArgument(std::string(name) + " is " + std::to_string(value) +
                           ", it must be at least " + std::to_string(least));
  };
  PAGEMILL_RETURN_IF_ERROR(check("max_blocks", max_blocks, 1));
  PAGEMILL_RETURN_IF_ERROR(check("max_steps_in_flight", max_steps_in_flight, 1));
  PAGEMILL_RETURN_IF_ERROR(check("max_graph_tokens", max_graph_tokens, 0));
  PAGEMILL_RETURN_IF_ERROR(check("max_graphs", max_graphs, 1));
  PAGEMILL_RETURN_IF_ERROR(check("token_columns", token_columns, 0));
  PAGEMILL_RETURN_IF_ERROR(check("max_adapter_rank", max_adapter_rank, 1));
  PAGEMILL_RETURN_IF_ERROR(check("exchange_bytes", exchange_bytes, 1));
  PAGEMILL_RETURN_IF_ERROR(check("upload.offload_bytes", upload.offload_bytes, 0));
  return check("upload.buffer_bytes", upload.buffer_bytes, 1);
}

}  // namespace pagemill::program
