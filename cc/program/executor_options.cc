#include "cc/program/executor_options.h"

namespace pagemill::program {
namespace {

Status CheckRange(const char* field, int32_t value, int32_t low, int32_t high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument(std::string(field) + " must be from " + std::to_string(low) + " to " +
                         std::to_string(high) + ", got " + std::to_string(value));
}

}  // namespace

Status ExecutorOptions::Validate() const {
  PM_RETURN_IF_ERROR(CheckRange("num_threads", num_threads, 0, 4096));
  PM_RETURN_IF_ERROR(CheckRange("max_num_tokens", max_num_tokens, 1, 1 << 24));
  PM_RETURN_IF_ERROR(CheckRange("max_num_seqs", max_num_seqs, 1, 1 << 20));
  PM_RETURN_IF_ERROR(CheckRange("max_num_logits_rows", max_num_logits_rows, 1, 1 << 24));
  PM_RETURN_IF_ERROR(CheckRange("block_size", block_size, 1, 1024));
  // Slots (block * block_size + offset) are int32.
  PM_RETURN_IF_ERROR(CheckRange("num_blocks", num_blocks, 1, INT32_MAX / block_size));
  if (kv_cache_dtype != DType::kBF16 && kv_cache_dtype != DType::kF32) {
    return InvalidArgument("kv_cache_dtype must be bf16 or f32, got " +
                           std::string(Info(kv_cache_dtype).name));
  }
  return OkStatus();
}

}  // namespace pagemill::program
