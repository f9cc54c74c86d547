#include "cc/ops/latent_attention/latent_attention.h"

#include "cc/ops/latent_write/latent_cache.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/latent_attention/latent_attention_params.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

static_assert(ops::kMaxLatentSize == kMaxLatentWidth);

constexpr size_t kChosen = 3;  // an optional input

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& q = call.inputs[0];
  const TensorView& cache = call.inputs[2];
  const TensorView& rope = call.inputs[1];
  const int64_t heads = q.shape[1], latent_size = q.shape[2];
  const int64_t rope_size = ops::HasInput(call, /*input=*/1) ? rope.shape[2] : 0;
  LatentAttentionParams params = {
      .q = RowsOf(q),
      .rope = RowsOf(rope),
      .cache = RowsOf(cache),
      .y = RowsOf(call.outputs[0]),
      .type = ElementTypeOf(cache.dtype),
      .f8_row = ops::LatentF8RowOf(call, latent_size + rope_size),
      .row_bytes = RowBytes(cache.dtype, cache.shape[2]),
      .batch = StepTokensOf(*call.batch),
      .heads = static_cast<int32_t>(heads),
      .latent_size = static_cast<int32_t>(latent_size),
      .rope_size = static_cast<int32_t>(rope_size),
      .rows_of_page = static_cast<int32_t>(cache.shape[1]),
      .tokens_of_row = ops::TokensOfRow(call, /*input=*/2),
      .window = static_cast<int32_t>(call.attributes->GetInt("window", 0)),
      .scale = static_cast<float>(call.attributes->Get("scale", 1))};
  if (ops::HasInput(call, kChosen)) {
    params.chosen = RowsOf(call.inputs[kChosen]);
    params.choices = static_cast<int32_t>(call.inputs[kChosen].shape[1]);
  }
  if (call.outputs.size() > 1) params.lse = RowsOf(call.outputs[1]);
  LaunchGroups(context, LatentModule(q.dtype), "latent_attention_kernel", q.shape[0] * heads,
               kLatentGroupSize, params);
}

}  // namespace

const ops::Kernel kLatentAttention = SyclKernel("latent_attention", Run);

}  // namespace pagemill::sycl
