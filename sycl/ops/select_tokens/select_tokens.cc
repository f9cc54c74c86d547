#include "cc/ops/select_tokens/select_tokens.h"

#include <algorithm>

#include "cc/ops/latent_write/latent_cache.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/select_tokens/select_tokens_params.h"

namespace pagemill::sycl {
namespace {

constexpr int64_t kTokensAtATime = 128;  // bounds the workspace

// Keys that a token keeps until the best are selected.
int64_t CapacityOf(const ops::OpCall& call) {
  const int64_t choices = call.outputs[0].shape[1];
  return choices + std::max<int64_t>(choices, kSelectGroupSize);
}

int64_t TokensAtATime(const ops::OpCall& call) {
  return std::min(kTokensAtATime, call.inputs[0].shape[0]);
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& q = call.inputs[0];
  const TensorView& cache = call.inputs[3];
  const int64_t tokens = q.shape[0], at_a_time = TokensAtATime(call), capacity = CapacityOf(call);
  auto* const keys = reinterpret_cast<uint32_t*>(context.workspace.data());
  SelectTokensParams params = {
      .q = RowsOf(q),
      .rope = RowsOf(call.inputs[1]),
      .weights = RowsOf(call.inputs[2]),
      .cache = RowsOf(cache),
      .chosen = RowsOf(call.outputs[0]),
      .type = ElementTypeOf(cache.dtype),
      .batch = StepTokensOf(*call.batch),
      .heads = static_cast<int32_t>(q.shape[1]),
      .index_size = static_cast<int32_t>(q.shape[2]),
      .rope_size = static_cast<int32_t>(cache.shape[2] - q.shape[2]),
      .choices = static_cast<int32_t>(call.outputs[0].shape[1]),
      .rows_of_page = static_cast<int32_t>(cache.shape[1]),
      .tokens_of_row = ops::TokensOfRow(call, /*input=*/3),
      .keys = keys,
      .positions = reinterpret_cast<int32_t*>(keys + at_a_time * capacity),
      .capacity = static_cast<int32_t>(capacity)};
  for (int64_t first = 0; first < tokens; first += at_a_time) {
    params.first_token = first;
    LaunchGroups(context, LatentModule(q.dtype), "select_tokens_kernel",
                 std::min(at_a_time, tokens - first), kSelectGroupSize, params);
  }
}

int64_t WorkspaceBytes(const ops::OpCall& call, int32_t) {
  constexpr int64_t kKeyBytes = sizeof(uint32_t) + sizeof(int32_t);
  return TokensAtATime(call) * CapacityOf(call) * kKeyBytes;
}

}  // namespace

const ops::Kernel kSelectTokens = {.op = "select_tokens",
                                   .name = "sycl",
                                   .priority = 10,
                                   .supports = Always,
                                   .run = Run,
                                   .workspace_bytes = WorkspaceBytes};

}  // namespace pagemill::sycl
