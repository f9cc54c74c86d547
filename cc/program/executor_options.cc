#include "cc/program/executor_options.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cc/ops/kv_page.h"
#include "cc/ops/operand_check.h"

namespace pagemill::program {
namespace {

Status CheckRange(const char* field, int32_t value, int32_t low, int32_t high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument(std::string(field) + " must be from " + std::to_string(low) + " to " +
                         std::to_string(high) + ", got " + std::to_string(value));
}

constexpr std::pair<std::string_view, DType> kKvCacheDTypes[] = {
    {"bf16", DType::kBF16}, {"f32", DType::kF32}, {"fp8", DType::kF8E4M3},
    {"int4", DType::kU4},   {"int8", DType::kI8}, {"k8v4", DType::kK8V4}};
constexpr std::string_view kKvCacheDTypeNames = "bf16, f32, fp8, int4, int8 or k8v4";

}  // namespace

StatusOr<DType> ParseActivationType(std::string_view name) {
  const std::optional<DType> dtype = ParseDType(name);
  if (dtype && ops::IsActType(*dtype)) return *dtype;
  return InvalidArgument("activation_type is '" + std::string(name) +
                         "'; it must be f32, bf16 or f16");
}

StatusOr<DType> ParseKvCacheDType(std::string_view name) {
  for (const auto& [known, dtype] : kKvCacheDTypes) {
    if (known == name) return dtype;
  }
  return InvalidArgument("kv_cache_dtype is '" + std::string(name) + "'; it must be " +
                         std::string(kKvCacheDTypeNames));
}

std::string_view KvCacheDTypeName(DType dtype) {
  for (const auto& [name, known] : kKvCacheDTypes) {
    if (known == dtype) return name;
  }
  return Info(dtype).name;
}

Status ExecutorOptions::Validate() const {
  PAGEMILL_RETURN_IF_ERROR(CheckRange("num_threads", num_threads, 0, 4096));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("max_num_tokens", max_num_tokens, 1, 1 << 24));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("max_num_seqs", max_num_seqs, 1, 1 << 20));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("max_num_logits_rows", max_num_logits_rows, 1, 1 << 24));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("block_size", block_size, 1, 1024));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("max_adapters", max_adapters, 0, 1 << 12));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("max_draft_tokens", max_draft_tokens, 0, 1 << 20));
  // Slots (block * block_size + offset) are int32.
  PAGEMILL_RETURN_IF_ERROR(CheckRange("num_blocks", num_blocks, 1, INT32_MAX / block_size));
  if (!ops::IsKvDType(kv_cache_dtype)) {
    return InvalidArgument("kv_cache_dtype must be " + std::string(kKvCacheDTypeNames) + ", got " +
                           std::string(Info(kv_cache_dtype).name));
  }
  // Ops are checked with blocks of 16 tokens (check_ops.cc), not with these.
  if (ops::HasInt4Rows(kv_cache_dtype) && block_size % 4 != 0) {
    return InvalidArgument("block_size must be a multiple of 4 with kv_cache_dtype " +
                           std::string(KvCacheDTypeName(kv_cache_dtype)) + ", got " +
                           std::to_string(block_size));
  }
  if (!ops::IsActType(activation_type)) {
    return InvalidArgument("activation_type must be f32, bf16 or f16, got " +
                           std::string(Info(activation_type).name));
  }
  return OkStatus();
}

}  // namespace pagemill::program
