#include "cc/ops/sample/row_adjustments.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

constexpr uint32_t kThreads = 256;
constexpr int64_t kColumns = 4096;  // that a block clears

PAGEMILL_KERNEL Clear(Rows<int32_t> counts, const int32_t* cleared, int64_t size) {
  int32_t* const row = counts[cleared[BlockIndex().x]];
  const int64_t begin = BlockIndex().y * kColumns;
  const int64_t end = begin + kColumns < size ? begin + kColumns : size;
  for (int64_t i = begin + ThreadIndex().x; i < end; i += kThreads) row[i] = 0;
}

PAGEMILL_KERNEL Count(Rows<int32_t> counts, Rows<const int32_t> changes, const int32_t* ids,
                      int64_t num_changes, int64_t size) {
  const int64_t n = static_cast<int64_t>(BlockIndex().x) * kThreads + ThreadIndex().x;
  if (n >= num_changes) return;
  const int32_t* const words = changes[n];
  const ops::TokenCount change = {words[0], words[1], words[2]};
  const int32_t token = change.token_id >= 0 ? change.token_id : ids[-1 - change.token_id];
  if (token < 0 || token >= size) return;
  counts[change.slot][token] += change.amount;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& counts = call.inputs[0];
  const TensorView& cleared = call.inputs[1];
  const TensorView& changes = call.inputs[2];
  const int64_t size = counts.shape[1];
  if (cleared.shape[0] > 0) {
    Launch(*context.stream,
           {.blocks = {static_cast<uint32_t>(cleared.shape[0]), DivideUp(size, kColumns)},
            .threads = {kThreads}},
           Clear, RowsOf<int32_t>(counts), cleared.Data<const int32_t>(), size);
  }
  const int64_t num_changes = changes.shape[0];
  if (num_changes == 0) return;
  Launch(*context.stream, {.blocks = {DivideUp(num_changes, kThreads)}, .threads = {kThreads}},
         Count, RowsOf<int32_t>(counts), RowsOf<const int32_t>(changes),
         call.inputs[3].Data<const int32_t>(), num_changes, size);
}

constexpr ops::Kernel kKernels[] = {{"count_tokens", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> CountTokensKernels() { return kKernels; }

}  // namespace pagemill::gpu
