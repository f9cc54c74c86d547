#include "sycl/ops/all_reduce/gather_elements.h"

#include <algorithm>
#include <cstddef>

#include "cc/tensor/dtype.h"
#include "sycl/ops/concat/concat_params.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

SyclStream& StreamOf(const ops::KernelContext& context) {
  return static_cast<SyclStream&>(*context.stream);
}

}  // namespace

const RankMemory* RankMemoryOf(const ops::KernelContext& context) {
  return StreamOf(context).rank_memory();
}

RowElements ElementsOf(const TensorView& rows, int64_t first, int64_t count) {
  return {.rows = RowsOf(rows), .width = rows.RowElements(), .first = first, .count = count};
}

void GatherElements(const TensorView& x, int64_t first, int64_t count,
                    ops::KernelContext& context) {
  const int64_t own = std::min(count, x.Elements() - first);
  const std::byte* from = x.Data<const std::byte>() + RowBytes(x.dtype, first);
  if (own < count || !x.IsDense()) {
    std::byte* const packed = RankMemoryOf(context)->sent;
    if (own > 0) {
      LaunchItems(context, ActModule(x.dtype), "pack_elements_kernel", own,
                  PackElementsParams{.x = ElementsOf(x, first, own), .packed = packed});
    }
    from = packed;
  }
  StreamOf(context).Gather(from, RowBytes(x.dtype, count));
}

void CopyRows(const TensorView& x, const TensorView& y, ops::KernelContext& context) {
  if (x.data == y.data) return;
  LaunchItems(context, ActModule(x.dtype), "concat_kernel", x.Elements(),
              ConcatParams{.x = RowsOf(x),
                           .y = RowsOf(y),
                           .rows = x.shape[0],
                           .width = x.RowElements(),
                           .first = 0});
}

bool AmongRanks(const device::Capabilities&, const ops::OpCall& call) {
  return call.attributes->GetInt("axis", 0) == 0 &&
         call.attributes->GetInt("ranks", 1) <= kMaxSyclRanks;
}

}  // namespace pagemill::sycl
