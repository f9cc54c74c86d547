#include "cc/ops/kv_write/kv_write.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/kv_write/kv_write.h"
#include "sycl/ops/kv_write/kv_write_params.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {

void RunKvWrite(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::KvWriteArgs args = ops::ToKvWriteArgs(call);
  constexpr int32_t kGroupSize = 128;
  const int64_t tokens = args.k.shape[0], heads = args.k.shape[1];
  const int64_t items = tokens * 2 * heads * kLanes;
  LaunchGroups(context, ActModule(args.k.dtype), "kv_write_kernel",
               (items + kGroupSize - 1) / kGroupSize, kGroupSize,
               KvWriteParams{.k = RowsOf(args.k),
                             .v = RowsOf(args.v),
                             .cache = RowsOf(args.cache),
                             .slots = args.batch->slot_mapping,
                             .type = ElementTypeOf(args.cache.dtype),
                             .tokens = tokens,
                             .heads = heads,
                             .head_dim = args.k.shape[2],
                             .value_dim = args.v.shape[2],
                             .block_size = args.batch->block_size,
                             .k_factor = 1.0f / args.scales.k,
                             .v_factor = 1.0f / args.scales.v});
}

const ops::Kernel kKvWrite =
    SyclKernel("kv_write", RunKvWrite, ops::WithKeysInColumns<HasCacheType<2>>);

}  // namespace pagemill::sycl
