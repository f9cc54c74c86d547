#include "cc/ops/attention/attention_pages.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "cc/ops/kv_page.h"
#include "cc/ops/kv_write/kv_write.h"
#include "cc/ops/paged_attention/paged_attention.h"

namespace pagemill::ops {
namespace {

constexpr int32_t kPageTokens = 16;

int64_t Align(int64_t bytes) { return (bytes + 63) / 64 * 64; }

int64_t PagesOf(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

// At most: every request may end within a page.
int64_t NumPages(const OpCall& call) {
  const int64_t tokens = call.inputs[0].shape[0];
  return PagesOf(tokens) + std::min<int64_t>(call.batch->num_requests, tokens);
}

TensorView Pages(const OpCall& call, std::byte* data) {
  const TensorView& k = call.inputs[1];
  const int64_t elements = KvBlockElements(DType::kF32, {k.shape[1], k.shape[2]}, kPageTokens);
  return TensorView::Dense(data, DType::kF32, {NumPages(call), elements});
}

const Kernel& Named(const OpDefinition& op, std::string_view name) {
  return *std::find_if(op.kernels.begin(), op.kernels.end(),
                       [name](const Kernel& kernel) { return kernel.name == name; });
}

// Where the arrays of the plan lie.
struct PlanLayout {
  explicit PlanLayout(const OpCall& call)
      : seq_lens(Align(call.inputs[0].shape[0] * 4)),
        block_table(seq_lens + Align(int64_t{call.batch->num_requests} * 4)) {}
  int64_t slot_mapping = 0, seq_lens, block_table;  // bytes from the start

  // The paged plan follows so many entries of the block table.
  int64_t Paged(int64_t entries) const { return block_table + Align(entries * 4); }
};

// The batch as the two paged ops see it, with the arrays of `plan`. `longest` is the most tokens of
// a request.
BatchView PagedBatchOf(const OpCall& call, const std::byte* plan, int64_t longest) {
  const PlanLayout layout(call);
  BatchView batch = *call.batch;
  batch.seq_lens = reinterpret_cast<const int32_t*>(plan + layout.seq_lens);
  batch.block_size = kPageTokens;
  batch.num_common_blocks = 0;
  batch.slot_mapping = reinterpret_cast<const int32_t*>(plan + layout.slot_mapping);
  batch.block_table = reinterpret_cast<const int32_t*>(plan + layout.block_table);
  batch.block_table_stride = PagesOf(longest);
  return batch;
}

int64_t LongestRequest(const BatchView& batch) {
  int64_t longest = 0;
  for (int32_t r = 0; r < batch.num_requests; ++r) {
    longest = std::max<int64_t>(longest, batch.query_start[r + 1] - batch.query_start[r]);
  }
  return longest;
}

// A call of paged_attention over `pages`.
class PagedCall {
 public:
  PagedCall(const OpCall& call, const BatchView& batch, std::byte* pages)
      : inputs_{call.inputs[0], Pages(call, pages)},
        call_{.inputs = inputs_,
              .outputs = call.outputs,
              .attributes = call.attributes,
              .batch = &batch} {}
  const OpCall& call() const { return call_; }

 private:
  TensorView inputs_[2];
  OpCall call_;
};

// All kernels for f32 caches have the same plan and workspace.
const Kernel& AnyPagedKernel() { return Named(PagedAttentionOp(), "portable"); }

int64_t PlanBytes(const OpCall& call) {
  const int64_t tokens = call.inputs[0].shape[0];
  const BatchView batch = PagedBatchOf(call, nullptr, /*longest=*/tokens);
  const int64_t entries = batch.num_requests * batch.block_table_stride;
  return PlanLayout(call).Paged(entries) +
         AnyPagedKernel().plan->bytes(PagedCall(call, batch, nullptr).call());
}

void MakePlan(const OpCall& call, std::span<std::byte> plan) {
  const PlanLayout layout(call);
  int32_t* slots = reinterpret_cast<int32_t*>(plan.data() + layout.slot_mapping);
  int32_t* seq_lens = reinterpret_cast<int32_t*>(plan.data() + layout.seq_lens);
  int32_t* table = reinterpret_cast<int32_t*>(plan.data() + layout.block_table);
  const int64_t longest = LongestRequest(*call.batch);
  int32_t page = 0;
  for (int32_t r = 0; r < call.batch->num_requests; ++r) {
    seq_lens[r] = call.batch->query_start[r + 1] - call.batch->query_start[r];
    for (int32_t i = 0; i < seq_lens[r]; ++i) *slots++ = page * kPageTokens + i;
    for (int64_t i = 0; i < PagesOf(longest); ++i) {
      *table++ = i < PagesOf(seq_lens[r]) ? page++ : 0;
    }
  }
  const BatchView batch = PagedBatchOf(call, plan.data(), longest);
  const int64_t offset = layout.Paged(batch.num_requests * batch.block_table_stride);
  AnyPagedKernel().plan->make(PagedCall(call, batch, nullptr).call(),
                              plan.subspan(static_cast<size_t>(offset)));
}

}  // namespace

const BatchPlan kAttentionPagesPlan = {.bytes = PlanBytes, .make = MakePlan};

int64_t AttentionPagesBytes(const OpCall& call, int32_t num_threads) {
  const TensorView pages = Pages(call, nullptr);
  const BatchView batch = PagedBatchOf(call, nullptr, call.inputs[0].shape[0]);
  return Align(pages.shape[0] * pages.row_stride_bytes) +
         AnyPagedKernel().workspace_bytes(PagedCall(call, batch, nullptr).call(), num_threads);
}

void RunOverPages(std::string_view kernel, const OpCall& call, KernelContext& context) {
  if (call.batch->num_tokens == 0) return;
  const int64_t longest = LongestRequest(*call.batch);
  const BatchView batch = PagedBatchOf(call, context.plan, longest);
  std::byte* const pages = context.workspace.data();
  const PagedCall paged(call, batch, pages);
  const TensorView& cache = paged.call().inputs[1];

  const TensorView stored[] = {call.inputs[1], call.inputs[2], cache};
  KernelContext inner = context;
  Named(KvWriteOp(), kernel)
      .run({.inputs = stored, .outputs = {}, .attributes = call.attributes, .batch = &batch},
           inner);
  inner.workspace = context.workspace.subspan(
      static_cast<size_t>(Align(cache.shape[0] * cache.row_stride_bytes)));
  inner.plan = context.plan + PlanLayout(call).Paged(batch.num_requests * batch.block_table_stride);
  Named(PagedAttentionOp(), kernel).run(paged.call(), inner);
}

}  // namespace pagemill::ops
