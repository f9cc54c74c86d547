#include "cc/ops/attention/attention.h"

#include "cc/ops/attention/listed_keys.h"
#include "sycl/ops/attention/attention_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

AttentionBiases BiasesOf(const ops::BiasTable& table) {
  return {.data = table.data, .reach = table.reach, .row_stride = table.row_stride};
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& q = call.inputs[0];
  const TensorView& k = call.inputs[1];
  const ops::DistanceBiases biases = ops::AttentionBiases(call);
  LaunchGroups(
      context, ActModule(q.dtype), "attention_kernel", q.shape[0] * q.shape[1], kAttentionGroupSize,
      AttentionParams{
          .q = RowsOf(q),
          .y = RowsOf(call.outputs[0]),
          .k = RowsOf(k),
          .v = RowsOf(call.inputs[2]),
          .biases = BiasesOf(biases.rows),
          .column_biases = BiasesOf(biases.columns),
          .key_biases = BiasesOf(biases.keys),
          .grid_columns = biases.grid_columns,
          .query_start = call.batch->query_start,
          .requests = call.batch->num_requests,
          .rows_of_token = ops::RowsOfToken(call),
          .q_heads = static_cast<int32_t>(q.shape[1]),
          .kv_heads = static_cast<int32_t>(k.shape[1]),
          .head_dim = static_cast<int32_t>(q.shape[2]),
          .scale = static_cast<float>(call.attributes->Get("scale", 0)),
          .soft_cap = static_cast<float>(call.attributes->Get("soft_cap", 0)),
          .sinks = ops::AttentionSinks(call),
          .window = static_cast<int32_t>(call.attributes->GetInt("window", 0)),
          .causal = call.attributes->GetInt("causal", 1) != 0,
          .listed = reinterpret_cast<const int32_t*>(ops::ListedKeys(call, context.plan))});
}

}  // namespace

constinit const ops::Kernel kAttention = [] {
  ops::Kernel kernel = SyclKernel("attention", Run);
  kernel.plan = &ops::kListedKeysPlan;
  return kernel;
}();

}  // namespace pagemill::sycl
