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
  const TensorView& rope = call.inputs[1];
  const int64_t tokens = latent.shape[0], size = latent.RowElements();
  const int64_t width = size + (ops::HasInput(call, /*input=*/1) ? rope.RowElements() : 0);
  const ops::LatentF8Row row = ops::LatentF8RowOf(call, width);
  const bool is_f8 = cache.dtype == DType::kF8E4M3;
  LaunchItems(context, LatentModule(latent.dtype),
              is_f8 ? "latent_write_f8_kernel" : "latent_write_kernel",
              tokens * (is_f8 ? row.groups() + row.rest : width),
              LatentWriteParams{.latent = RowsOf(latent),
                                .rope = RowsOf(rope),
                                .cache = RowsOf(cache),
                                .type = ElementTypeOf(cache.dtype),
                                .f8_row = row,
                                .slots = call.batch->slot_mapping,
                                .tokens_of_row = ops::TokensOfRow(call, /*input=*/2),
                                .rows_of_page = static_cast<int32_t>(cache.shape[1]),
                                .tokens = tokens,
                                .latent_size = size,
                                .width = width});
}

}  // namespace

const ops::Kernel kLatentWrite = SyclKernel("latent_write", Run);

}  // namespace pagemill::sycl
