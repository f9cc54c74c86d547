#include "cc/ops/apply_adapter/apply_adapter.h"

#include <algorithm>
#include <cstring>

#include "cc/ops/apply_adapter/adapter_rows.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

Status CheckApplyAdapter(const OpCall& call) {
  OperandCheck check("apply_adapter", call, /*inputs=*/4, /*outputs=*/1);
  check.ActInput(0, "y", "N,M*");
  check.ActInput(1, "x", "N,K*");
  check.Input(2, "slots", DType::kI32, "N");
  check.Input(3, "table", DType::kI8, "M,K");
  check.ActOutput(0, "z", "N,M*");
  return check.Result();
}

// Multiply-adds that are worth handing to another thread.
constexpr int64_t kWorkPerChunk = 1 << 15;
// Columns that a thread takes at a time where rows are fewer than threads.
constexpr int64_t kColumnUnit = 128;

void CopyRow(const ApplyAdapterArgs& args, int64_t n) {
  if (args.z.Row<float>(n) == args.y.Row<float>(n)) return;
  std::memcpy(args.z.Row<float>(n), args.y.Row<float>(n),
              static_cast<size_t>(args.z.RowElements()) * sizeof(float));
}

// Rows of one adapter on one thread.
class RowBlock {
 public:
  explicit RowBlock(const ApplyAdapterArgs& args) : args_(args) {
    rows_.in = args.x.RowElements();
    rows_.out = args.y.RowElements();
    for (int64_t i = 0; i < kAdapterRows; ++i) rows_.low[i] = low_[i];
  }

  // Computes A x of rows [begin, end), which have the adapter `m`.
  template <AdapterDown kDown>
  void Load(const AdapterMatrices& m, int64_t begin, int64_t end) {
    rows_.adapter = &m;
    rows_.num_rows = end - begin;
    for (int64_t i = 0; i < end - begin; ++i) {
      rows_.x[i] = args_.x.Row<float>(begin + i);
      rows_.y[i] = args_.y.Row<float>(begin + i);
      rows_.z[i] = args_.z.Row<float>(begin + i);
    }
    if (m.rank > 0) kDown(rows_);
  }

  template <AdapterUp kUp>
  void Store(int64_t first_column, int64_t columns) {
    rows_.first_column = first_column;
    rows_.columns = columns;
    kUp(rows_);
  }

 private:
  const ApplyAdapterArgs& args_;
  AdapterRows rows_;
  alignas(64) float low_[kAdapterRows][kMaxAdapterRank];
};

template <AdapterDown kDown, AdapterUp kUp>
void RunRows(const ApplyAdapterArgs& args, int64_t begin, int64_t end) {
  RowBlock block(args);
  for (int64_t n = begin; n < end;) {
    const AdapterMatrices* m = args.Of(n);
    if (m == nullptr) {
      CopyRow(args, n++);
      continue;
    }
    int64_t last = n + 1;
    while (last < std::min(end, n + kAdapterRows) && args.slots[last] == args.slots[n]) ++last;
    block.Load<kDown>(*m, n, last);
    block.Store<kUp>(0, args.y.RowElements());
    n = last;
  }
}

// Units of columns [begin, end), numbered through all rows. A row's A x is computed by each thread
// that has some of its columns.
template <AdapterDown kDown, AdapterUp kUp>
void RunColumns(const ApplyAdapterArgs& args, int64_t begin, int64_t end) {
  const int64_t out = args.y.RowElements();
  const int64_t units = (out + kColumnUnit - 1) / kColumnUnit;
  RowBlock block(args);
  while (begin < end) {
    const int64_t n = begin / units;
    const int64_t first = begin % units * kColumnUnit;
    const int64_t last_unit = std::min(end, (n + 1) * units);
    const int64_t columns = std::min(out, (last_unit - n * units) * kColumnUnit) - first;
    begin = last_unit;
    const AdapterMatrices* m = args.Of(n);
    if (m == nullptr) {
      float* z = args.z.Row<float>(n) + first;
      const float* y = args.y.Row<float>(n) + first;
      if (z != y) std::memcpy(z, y, static_cast<size_t>(columns) * sizeof(float));
      continue;
    }
    block.Load<kDown>(*m, n, n + 1);
    block.Store<kUp>(first, columns);
  }
}

template <AdapterDown kDown, AdapterUp kUp>
void Run(const OpCall& call, KernelContext& context) {
  const ApplyAdapterArgs args = ToApplyAdapterArgs(call);
  const int64_t rows = args.y.shape[0], out = args.y.RowElements();
  int64_t first = 0, rank = 1;
  while (first < rows && args.Of(first) == nullptr) CopyRow(args, first++);
  if (first == rows) return;  // the usual step of a server whose clients use no adapter
  for (int64_t n = first; n < rows; ++n) {
    if (const AdapterMatrices* m = args.Of(n)) rank = std::max<int64_t>(rank, m->rank);
  }
  const int64_t row_work = rank * (args.x.RowElements() + out);
  if (rows >= kAdapterRows * context.pool->num_threads()) {
    context.pool->ParallelFor(rows, std::max(kAdapterRows, kWorkPerChunk / row_work),
                              [&](int64_t begin, int64_t end, int) {
                                RunRows<kDown, kUp>(args, begin, end);
                              });
    return;
  }
  const int64_t units = (out + kColumnUnit - 1) / kColumnUnit;
  context.pool->ParallelFor(rows * units,
                            std::max<int64_t>(1, kWorkPerChunk * units / row_work),
                            [&](int64_t begin, int64_t end, int) {
                              RunColumns<kDown, kUp>(args, begin, end);
                            });
}

constexpr F32Kernel kReference{.act_inputs = 0b11, .run = ApplyAdapterReference};

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"apply_adapter", "avx512", 30, OnAvx512, Run<AdapterDownAvx512, AdapterUpAvx512>},
    {"apply_adapter", "avx2", 20, OnAvx2, Run<AdapterDownAvx2, AdapterUpAvx2>},
#endif
    {"apply_adapter", "portable", 10, OnEveryCpu, Run<AdapterDownPortable, AdapterUpPortable>},
    WidenedReference<&kReference>("apply_adapter"),
};

constexpr AliasRule kAliases[] = {{.input = 0, .output = 0}};

constexpr OpDefinition kDefinition{"apply_adapter", CheckApplyAdapter, kKernels, kAliases};

}  // namespace

ApplyAdapterArgs ToApplyAdapterArgs(const OpCall& call) {
  return {.y = call.inputs[0],
          .x = call.inputs[1],
          .z = call.outputs[0],
          .slots = call.inputs[2].Data<const int32_t>(),
          .table = static_cast<const AdapterMatrices*>(call.inputs[3].data)};
}

const OpDefinition& ApplyAdapterOp() { return kDefinition; }

}  // namespace pagemill::ops
