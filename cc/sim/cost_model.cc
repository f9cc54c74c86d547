#include "cc/sim/cost_model.h"

#include <algorithm>
#include <string>

#include "cc/sim/fixed_point.h"

namespace pagemill::sim {
namespace {

constexpr int64_t kNanosPerSecond = 1000000000;
// Keeps all products of the cost formulas within 64 bits.
constexpr int64_t kMaxSize = 1 << 20;

Status CheckRange(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument(std::string(field) + " is " + std::to_string(value) +
                         ", it must be from " + std::to_string(low) + " to " +
                         std::to_string(high));
}

int64_t LayerWeights(const ModelShape& s) {
  const int64_t hidden = s.hidden_size;
  const int64_t attention = 2 * hidden * (s.num_heads + s.num_kv_heads) * s.head_size;
  return attention + hidden * s.num_mlp_matrices * s.intermediate_size;
}

// The nanoseconds for `amount` at `permille` thousandths of `rate` per second.
int64_t TimeFor(int64_t amount, int64_t rate, int32_t permille) {
  const auto reached = static_cast<uint64_t>(
      MulDiv(static_cast<uint64_t>(rate), static_cast<uint64_t>(permille), 1000));
  return MulDiv(static_cast<uint64_t>(amount), kNanosPerSecond, reached);
}

}  // namespace

Status DeviceSpec::Validate() const {
  PAGEMILL_RETURN_IF_ERROR(CheckRange("peak_flops", peak_flops, kNanosPerSecond, int64_t{1} << 60));
  PAGEMILL_RETURN_IF_ERROR(
      CheckRange("bandwidth_bytes", bandwidth_bytes, 1000000, int64_t{1} << 60));
  PAGEMILL_RETURN_IF_ERROR(
      CheckRange("compute_efficiency_permille", compute_efficiency_permille, 1, 1000));
  PAGEMILL_RETURN_IF_ERROR(
      CheckRange("bandwidth_efficiency_permille", bandwidth_efficiency_permille, 1, 1000));
  return CheckRange("step_overhead_ns", step_overhead_ns, 0, 1000 * kNanosPerSecond);
}

int64_t ModelShape::num_weights() const {
  return num_layers * LayerWeights(*this) + int64_t{hidden_size} * vocab_size;
}

int64_t ModelShape::kv_token_bytes() const {
  return 2 * int64_t{num_layers} * num_kv_heads * head_size * kv_bits / 8;
}

Status ModelShape::Validate() const {
  PAGEMILL_RETURN_IF_ERROR(CheckRange("num_layers", num_layers, 1, 4096));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("hidden_size", hidden_size, 1, kMaxSize));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("num_heads", num_heads, 1, 4096));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("num_kv_heads", num_kv_heads, 1, num_heads));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("head_size", head_size, 1, 4096));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("intermediate_size", intermediate_size, 1, kMaxSize));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("num_mlp_matrices", num_mlp_matrices, 2, 3));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("vocab_size", vocab_size, 1, 1 << 24));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("weight_bytes", weight_bytes, 0, int64_t{1} << 50));
  return CheckRange("kv_bits", kv_bits, 1, 64);
}

CostModel::CostModel(const DeviceSpec& device, const ModelShape& shape)
    : device_(device),
      flops_per_token_(2 * shape.num_layers * LayerWeights(shape)),
      flops_per_row_(2 * int64_t{shape.hidden_size} * shape.vocab_size),
      flops_per_pair_(4 * int64_t{shape.num_layers} * shape.num_heads * shape.head_size),
      weight_bytes_(shape.weight_bytes > 0 ? shape.weight_bytes : 2 * shape.num_weights()),
      kv_token_bytes_(shape.kv_token_bytes()) {
  PAGEMILL_CHECK(device.Validate().ok());
  PAGEMILL_CHECK(shape.Validate().ok());
}

StepCost CostModel::Of(const step::StepPlan& plan) const {
  int64_t rows = 0, pairs = 0, kv_tokens = 0;
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    const int64_t n = entry.num_tokens();
    const int64_t context = entry.num_computed_tokens;
    rows += entry.prompt_logprobs ? n : (entry.sample ? 1 : 0);
    pairs += n * context + n * (n + 1) / 2;
    kv_tokens += context + 2 * n;
  }
  StepCost cost;
  cost.flops =
      plan.total_num_tokens * flops_per_token_ + rows * flops_per_row_ + pairs * flops_per_pair_;
  cost.bytes = weight_bytes_ + kv_tokens * kv_token_bytes_;
  cost.compute_ns = TimeFor(cost.flops, device_.peak_flops, device_.compute_efficiency_permille);
  cost.memory_ns =
      TimeFor(cost.bytes, device_.bandwidth_bytes, device_.bandwidth_efficiency_permille);
  // At least a nanosecond: virtual time must advance.
  cost.total_ns =
      std::max<int64_t>(1, std::max(cost.compute_ns, cost.memory_ns) + device_.step_overhead_ns);
  return cost;
}

}  // namespace pagemill::sim
