#include "cc/ops/apply_adapter/apply_adapter.h"

#include <algorithm>
#include <cstring>
#include <span>

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

// Multiply-adds that are worth handing to another thread: most of their time is reading matrices.
constexpr int64_t kWorkPerChunk = 1 << 12;
// Columns that a thread takes at a time where rows are fewer than threads.
constexpr int64_t kColumnUnit = 64;

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

  // Computes A x of these rows, which have the adapter `m`.
  template <AdapterDown kDown>
  void Load(const AdapterMatrices& m, std::span<const int32_t> rows) {
    rows_.adapter = &m;
    rows_.num_rows = static_cast<int64_t>(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      rows_.x[i] = args_.x.Row<float>(rows[i]);
      rows_.y[i] = args_.y.Row<float>(rows[i]);
      rows_.z[i] = args_.z.Row<float>(rows[i]);
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

// `rows` are sorted by slot.
template <AdapterDown kDown, AdapterUp kUp>
void RunRows(const ApplyAdapterArgs& args, std::span<const int32_t> rows) {
  RowBlock block(args);
  while (!rows.empty()) {
    size_t count = 1;
    while (count < std::min<size_t>(rows.size(), kAdapterRows) &&
           args.slots[rows[count]] == args.slots[rows[0]]) {
      ++count;
    }
    block.Load<kDown>(*args.Of(rows[0]), rows.first(count));
    block.Store<kUp>(0, args.y.RowElements());
    rows = rows.subspan(count);
  }
}

// Units of columns [begin, end), numbered through all of `rows`. A row's A x is computed by each
// thread that has some of its columns.
template <AdapterDown kDown, AdapterUp kUp>
void RunColumns(const ApplyAdapterArgs& args, std::span<const int32_t> rows, int64_t begin,
                int64_t end) {
  const int64_t out = args.y.RowElements();
  const int64_t units = (out + kColumnUnit - 1) / kColumnUnit;
  RowBlock block(args);
  while (begin < end) {
    const int64_t row = begin / units;
    const int64_t first = begin % units * kColumnUnit;
    const int64_t last_unit = std::min(end, (row + 1) * units);
    const int64_t columns = std::min(out, (last_unit - row * units) * kColumnUnit) - first;
    begin = last_unit;
    const auto one = rows.subspan(static_cast<size_t>(row), 1);
    block.Load<kDown>(*args.Of(one[0]), one);
    block.Store<kUp>(first, columns);
  }
}

template <AdapterDown kDown, AdapterUp kUp>
void Run(const OpCall& call, KernelContext& context) {
  const ApplyAdapterArgs args = ToApplyAdapterArgs(call);
  // The rows with an adapter, those of one adapter together: its matrices are read once for them.
  int32_t* const first_row = reinterpret_cast<int32_t*>(context.workspace.data());
  size_t count = 0;
  int64_t rank = 1;
  for (int64_t n = 0; n < args.y.shape[0]; ++n) {
    const AdapterMatrices* m = args.Of(n);
    if (m == nullptr) {
      CopyRow(args, n);
      continue;
    }
    first_row[count++] = static_cast<int32_t>(n);
    rank = std::max<int64_t>(rank, m->rank);
  }
  if (count == 0) return;  // the usual step of a server whose clients use no adapter
  const std::span<int32_t> rows(first_row, count);
  std::sort(rows.begin(), rows.end(), [&](int32_t a, int32_t b) {
    return args.slots[a] != args.slots[b] ? args.slots[a] < args.slots[b] : a < b;
  });
  const int64_t out = args.y.RowElements();
  const int64_t row_work = rank * (args.x.RowElements() + out);
  const auto size = static_cast<int64_t>(count);
  if (size >= kAdapterRows * context.pool->num_threads()) {
    context.pool->ParallelFor(size, std::max(kAdapterRows, kWorkPerChunk / row_work),
                              [&](int64_t begin, int64_t end, int) {
                                RunRows<kDown, kUp>(args,
                                                    rows.subspan(static_cast<size_t>(begin),
                                                                 static_cast<size_t>(end - begin)));
                              });
    return;
  }
  const int64_t units = (out + kColumnUnit - 1) / kColumnUnit;
  context.pool->ParallelFor(size * units, std::max<int64_t>(1, kWorkPerChunk * units / row_work),
                            [&](int64_t begin, int64_t end, int) {
                              RunColumns<kDown, kUp>(args, rows, begin, end);
                            });
}

int64_t WorkspaceBytes(const OpCall& call, int32_t) {
  return call.inputs[0].shape[0] * static_cast<int64_t>(sizeof(int32_t));
}

constexpr F32Kernel kReference{.act_inputs = 0b11, .run = ApplyAdapterReference};

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"apply_adapter", "avx512", 30, OnAvx512, Run<AdapterDownAvx512, AdapterUpAvx512>,
     WorkspaceBytes},
    {"apply_adapter", "avx2", 20, OnAvx2, Run<AdapterDownAvx2, AdapterUpAvx2>,
     WorkspaceBytes},
#endif
    {"apply_adapter", "portable", 10, OnEveryCpu, Run<AdapterDownPortable, AdapterUpPortable>,
     WorkspaceBytes},
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
