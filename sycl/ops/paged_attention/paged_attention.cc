#include "cc/ops/paged_attention/paged_attention.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/paged_attention/paged_attention_params.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::PagedAttentionArgs args = ops::ToPagedAttentionArgs(call);
  const ops::BatchView& batch = *args.batch;
  const bool divided = args.encoder_keys || args.decoder_keys;
  const int32_t* encoder_ends = divided ? batch.encoder_ends : nullptr;
  LaunchGroups(context, ActModule(args.q.dtype), "paged_attention_kernel",
               args.q.shape[0] * args.q.shape[1], kAttentionGroupSize,
               PagedAttentionParams{.q = RowsOf(args.q),
                                    .y = RowsOf(args.y),
                                    .cache = RowsOf(args.cache),
                                    .type = ElementTypeOf(args.cache.dtype),
                                    .sinks = args.sinks,
                                    .slopes = args.slopes,
                                    .biases = args.biases.rows.data,
                                    .bias_reach = args.biases.rows.reach,
                                    .query_start = batch.query_start,
                                    .seq_lens = batch.seq_lens,
                                    .block_table = batch.block_table,
                                    .table_stride = batch.block_table_stride,
                                    .requests = batch.num_requests,
                                    .block_size = batch.block_size,
                                    .q_heads = static_cast<int32_t>(args.q.shape[1]),
                                    .kv_heads = args.kv_heads,
                                    .head_dim = static_cast<int32_t>(args.q.shape[2]),
                                    .scale = args.scale * args.kv_scales.k,
                                    .v_scale = args.kv_scales.v,
                                    .window = args.window,
                                    .chunked = args.chunked,
                                    .causal = args.causal,
                                    .encoder_keys = args.encoder_keys,
                                    .encoder_ends = encoder_ends,
                                    .item_ends = args.item_ends ? batch.item_ends : nullptr,
                                    .soft_cap = args.soft_cap,
                                    .grows_from = args.grows_from});
}

}  // namespace

const ops::Kernel kPagedAttention =
    SyclKernel("paged_attention", Run, ops::WithKeysInColumns<HasCacheType<1>>);

}  // namespace pagemill::sycl
