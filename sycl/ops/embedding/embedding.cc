#include "cc/ops/embedding/embedding.h"

#include "sycl/ops/embedding/embedding_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/weights_of.h"

namespace pagemill::sycl {
namespace {

bool Supports(const device::Capabilities&, const ops::OpCall& call) {
  return AreReadable(call.inputs[1]);
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& table = call.inputs[1];
  const TensorView& y = call.outputs[0];
  const int64_t rows = call.inputs[0].shape[0], width = table.shape[1];
  LaunchItems(context, ActModule(y.dtype), "embedding_kernel", rows * width,
              EmbeddingParams{.ids = call.inputs[0].Data<const int32_t>(),
                              .table = WeightsOf(table),
                              .y = RowsOf(y),
                              .table_rows = static_cast<int32_t>(table.shape[0]),
                              .outside =
                                  static_cast<int32_t>(call.attributes->GetInt("outside", -1)),
                              .rows = rows,
                              .width = width,
                              .scale = static_cast<float>(call.attributes->Get("scale", 1))});
}

}  // namespace

const ops::Kernel kEmbedding = SyclKernel("embedding", Run, Supports);

}  // namespace pagemill::sycl
