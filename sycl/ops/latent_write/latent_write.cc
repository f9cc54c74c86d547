#include "cc/ops/latent_write/latent_write.h"

#include "cc/ops/latent_write/latent_cache.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/latent_write/latent_write_params.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& latent = call.inputs[0];
  const TensorView& cache = call.inputs[2];
  const int64_t tokens = latent.shape[0], width = cache.shape[2];
  LaunchItems(context, LatentModule(latent.dtype), "latent_write_kernel", tokens * width,
              LatentWriteParams{.latent = RowsOf(latent),
                                .rope = RowsOf(call.inputs[1]),
                                .cache = RowsOf(cache),
                                .type = ElementTypeOf(cache.dtype),
                                .slots = call.batch->slot_mapping,
                                .tokens_of_row = ops::TokensOfRow(call, /*input=*/2),
                                .rows_of_page = static_cast<int32_t>(cache.shape[1]),
                                .tokens = tokens,
                                .latent_size = latent.RowElements(),
                                .width = width});
}

}  // namespace

const ops::Kernel kLatentWrite = SyclKernel("latent_write", Run);

}  // namespace pagemill::sycl
