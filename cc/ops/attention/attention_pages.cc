#include "cc/ops/attention/attention_pages.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "cc/ops/attention/attention.h"
#include "cc/ops/attention/listed_keys.h"
#include "cc/ops/kv_page.h"
#include "cc/ops/kv_write/kv_write.h"
#include "cc/ops/paged_attention/paged_attention.h"

namespace pagemill::ops {
namespace {

constexpr int32_t kPageTokens = 16;

int64_t Align(int64_t bytes) { return (bytes + 63) / 64 * 64; }

int64_t PagesOf(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

// Upper bound: every request may end within a page.
int64_t NumPages(const OpCall& call) {
  const int64_t rows = call.inputs[0].shape[0];
  return PagesOf(rows) + std::min<int64_t>(call.batch->num_requests, rows);
}

TensorView Pages(const OpCall& call, DType dtype, std::byte* data) {
  const TensorView& k = call.inputs[1];
  const int64_t elements = KvBlockElements(dtype, {k.shape[1], k.shape[2]}, kPageTokens);
  return TensorView::Dense(data, dtype, {NumPages(call), elements});
}

const Kernel& Named(const OpDefinition& op, std::string_view name) {
  return *std::find_if(op.kernels.begin(), op.kernels.end(),
                       [name](const Kernel& kernel) { return kernel.name == name; });
}

// Layout of the plan's arrays.
struct PlanLayout {
  explicit PlanLayout(const OpCall& call)
      : slot_mapping(Align(ListedKeysBytes(call))),
        query_start(slot_mapping + Align(call.inputs[0].shape[0] * 4)),
        seq_lens(query_start + Align((int64_t{call.batch->num_requests} + 1) * 4)),
        block_table(seq_lens + Align(int64_t{call.batch->num_requests} * 4)) {}
  // Bytes from the start.
  int64_t listed_keys = 0, slot_mapping, query_start, seq_lens, block_table;

  // Offset of the paged plan, which follows `entries` entries of the block table.
  int64_t Paged(int64_t entries) const { return block_table + Align(entries * 4); }
};

// The batch as the two paged ops see it, with the arrays of `plan`. `longest` is the largest number
// of rows of a request.
BatchView PagedBatchOf(const OpCall& call, const std::byte* plan, int64_t longest) {
  const PlanLayout layout(call);
  BatchView batch = *call.batch;
  batch.num_tokens = static_cast<int32_t>(call.inputs[0].shape[0]);
  batch.query_start = reinterpret_cast<const int32_t*>(plan + layout.query_start);
  batch.seq_lens = reinterpret_cast<const int32_t*>(plan + layout.seq_lens);
  batch.block_size = kPageTokens;
  batch.num_common_blocks = 0;
  batch.slot_mapping = reinterpret_cast<const int32_t*>(plan + layout.slot_mapping);
  batch.block_table = reinterpret_cast<const int32_t*>(plan + layout.block_table);
  batch.block_table_stride = PagesOf(longest);
  return batch;
}

// In rows.
int64_t LongestRequest(const OpCall& call) {
  const BatchView& batch = *call.batch;
  int64_t longest = 0;
  for (int32_t r = 0; r < batch.num_requests; ++r) {
    longest = std::max<int64_t>(longest, batch.query_start[r + 1] - batch.query_start[r]);
  }
  return longest * RowsOfToken(call);
}

// An optional operand.
TensorView Optional(const OpCall& call, size_t input) {
  return call.inputs.size() > input ? call.inputs[input] : TensorView{};
}

// The keys that rows see, in `plan`; left out if these are those of the attributes.
TensorView KeyRangesOf(const OpCall& call, const std::byte* plan) {
  if (ListedKeysBytes(call) == 0) return {};
  void* const listed = const_cast<std::byte*>(plan) + PlanLayout(call).listed_keys;
  return TensorView::Dense(listed, DType::kI32, {call.inputs[0].shape[0], 2});
}

// A call of paged_attention over the pages.
class PagedCall {
 public:
  PagedCall(const OpCall& call, const BatchView& batch, const TensorView& pages,
            const std::byte* plan)
      : inputs_{call.inputs[0],
                pages,
                Optional(call, kAttentionSinks),
                {},
                Optional(call, kAttentionBiases),
                KeyRangesOf(call, plan),
                Optional(call, kAttentionColumnBiases),
                Optional(call, kAttentionKeyBiases)},
        call_{.inputs = inputs_,
              .outputs = call.outputs,
              .attributes = call.attributes,
              .batch = &batch} {}
  PagedCall(const PagedCall&) = delete;  // the call points into it
  const OpCall& call() const { return call_; }

 private:
  TensorView inputs_[8];
  OpCall call_;
};

// All kernels of paged_attention have the same plan, whatever the type of the pages.
const BatchPlan& PagedPlan() { return *Named(PagedAttentionOp(), "portable").plan; }

int64_t PlanBytes(const OpCall& call) {
  const BatchView batch = PagedBatchOf(call, nullptr, /*longest=*/call.inputs[0].shape[0]);
  const int64_t entries = batch.num_requests * batch.block_table_stride;
  return PlanLayout(call).Paged(entries) +
         PagedPlan().bytes(
             PagedCall(call, batch, Pages(call, DType::kF32, nullptr), nullptr).call());
}

void MakePlan(const OpCall& call, std::span<std::byte> plan) {
  const PlanLayout layout(call);
  ListKeys(call, plan.subspan(static_cast<size_t>(layout.listed_keys)));
  int32_t* slots = reinterpret_cast<int32_t*>(plan.data() + layout.slot_mapping);
  int32_t* query_start = reinterpret_cast<int32_t*>(plan.data() + layout.query_start);
  int32_t* seq_lens = reinterpret_cast<int32_t*>(plan.data() + layout.seq_lens);
  int32_t* table = reinterpret_cast<int32_t*>(plan.data() + layout.block_table);
  const int64_t longest = LongestRequest(call);
  const int32_t of_token = RowsOfToken(call);
  int32_t page = 0;
  query_start[0] = 0;
  for (int32_t r = 0; r < call.batch->num_requests; ++r) {
    query_start[r + 1] = call.batch->query_start[r + 1] * of_token;
    seq_lens[r] = query_start[r + 1] - query_start[r];
    for (int32_t i = 0; i < seq_lens[r]; ++i) *slots++ = page * kPageTokens + i;
    for (int64_t i = 0; i < PagesOf(longest); ++i) {
      *table++ = i < PagesOf(seq_lens[r]) ? page++ : 0;
    }
  }
  const BatchView batch = PagedBatchOf(call, plan.data(), longest);
  const int64_t offset = layout.Paged(batch.num_requests * batch.block_table_stride);
  const TensorView pages = Pages(call, DType::kF32, nullptr);
  PagedPlan().make(PagedCall(call, batch, pages, plan.data()).call(),
                   plan.subspan(static_cast<size_t>(offset)));
}

}  // namespace

const BatchPlan kPagesPlan = {.bytes = PlanBytes, .make = MakePlan};

bool SupportsPages(const PageKernels& kernels, const device::Capabilities& caps,
                   const OpCall& call) {
  const BatchView batch = PagedBatchOf(call, nullptr, call.inputs[0].shape[0]);
  const PagedCall paged(call, batch, Pages(call, kernels.pages, nullptr), nullptr);
  return Named(KvWriteOp(), kernels.write).supports(caps, call) &&
         Named(PagedAttentionOp(), kernels.attend).supports(caps, paged.call());
}

int64_t PagesWorkspaceBytes(const PageKernels& kernels, const OpCall& call, int32_t num_threads) {
  const TensorView pages = Pages(call, kernels.pages, nullptr);
  const BatchView batch = PagedBatchOf(call, nullptr, call.inputs[0].shape[0]);
  return Align(pages.shape[0] * pages.row_stride_bytes) +
         Named(PagedAttentionOp(), kernels.attend)
             .workspace_bytes(PagedCall(call, batch, pages, nullptr).call(), num_threads);
}

void RunOverPages(const PageKernels& kernels, const OpCall& call, KernelContext& context) {
  if (call.batch->num_tokens == 0) return;
  const BatchView batch = PagedBatchOf(call, context.plan, LongestRequest(call));
  const TensorView pages = Pages(call, kernels.pages, context.workspace.data());

  const TensorView stored[] = {call.inputs[1], call.inputs[2], pages};
  KernelContext inner = context;
  Named(KvWriteOp(), kernels.write)
      .run({.inputs = stored, .outputs = {}, .attributes = call.attributes, .batch = &batch},
           inner);
  inner.workspace = context.workspace.subspan(
      static_cast<size_t>(Align(pages.shape[0] * pages.row_stride_bytes)));
  inner.plan = context.plan + PlanLayout(call).Paged(batch.num_requests * batch.block_table_stride);
  Named(PagedAttentionOp(), kernels.attend)
      .run(PagedCall(call, batch, pages, context.plan).call(), inner);
}

}  // namespace pagemill::ops
