#include "cc/ops/apply_adapter/apply_adapter.h"

#include <algorithm>
#include <compare>
#include <cstring>
#include <iterator>
#include <span>
#include <string>

#include "cc/ops/apply_adapter/adapter_rows.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/widened/widened.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops {
namespace {

void CheckLayer(const OpCall& call, size_t layer, OperandCheck* check) {
  const size_t y = apply_adapter::ResultOperand(layer), table = apply_adapter::TableOperand(layer);
  const DType dtype = call.inputs[y].dtype;
  const char out = "ABCD"[layer], row = "abcd"[layer];
  const std::string result = std::string("N,") + row + "*";
  check->Require(IsActType(dtype), "y must be f32, bf16 or f16");
  check->Input(y, "y", dtype, result);
  const bool grouped = call.inputs[apply_adapter::kExperts].rank > 0;
  check->Input(table, "table", DType::kI8, (grouped ? "E," : "") + std::string(1, out) + ",K");
  check->Output(layer, "z", dtype, result);
  const int64_t choices = grouped ? check->Dim('J') : 1;
  check->Require(check->Dim(row) == choices * check->Dim(out),
                 "a row of y has " + std::to_string(check->Dim(row)) + " elements, not " +
                     std::to_string(choices) + " times " + std::to_string(check->Dim(out)));
}

Status CheckApplyAdapter(const OpCall& call) {
  const size_t layers = std::clamp<size_t>(call.outputs.size(), 1, kMaxAdaptedLayers);
  OperandCheck check("apply_adapter", call, /*inputs=*/apply_adapter::ResultOperand(layers),
                     /*outputs=*/layers);
  if (!check.ok()) return check.Result();
  const bool ids = call.inputs[apply_adapter::kX].dtype == DType::kI32;
  if (ids) {
    check.Input(apply_adapter::kX, "x", DType::kI32, "N");
  } else {
    check.ActInput(apply_adapter::kX, "x", "N,X*");
  }
  const bool selects = call.inputs[apply_adapter::kRows].rank > 0;
  check.Input(apply_adapter::kSlots, "slots", DType::kI32, selects ? "T" : "N");
  if (selects) check.Input(apply_adapter::kRows, "rows", DType::kI32, "N");
  const bool grouped = call.inputs[apply_adapter::kExperts].rank > 0;
  if (grouped) check.Input(apply_adapter::kExperts, "experts", DType::kI32, "N,J");
  for (size_t i = 0; i < layers; ++i) CheckLayer(call, i, &check);
  const int64_t x = check.Dim('X'), k = check.Dim('K');
  check.Require(ids || x == k || (grouped && x == k * check.Dim('J')),
                "a row of x has " + std::to_string(x) + " elements, the layer takes " +
                    std::to_string(k));
  return check.Result();
}

// Multiply-adds that are worth handing to another thread: most of their time is reading matrices.
constexpr int64_t kWorkPerChunk = 1 << 12;
// Columns that a thread takes at a time where rows are fewer than threads.
constexpr int64_t kColumnUnit = 64;

// More than this would not stay in the second-level cache until it is used.
constexpr int64_t kMaxPrefetchBytes = 256 << 10;

// Prefetches `columns` of `rows` rows. Matrices of a single row come from memory, and are too small
// for the hardware's prefetchers to get going.
void PrefetchMatrix(const AdapterMatrices& m, const void* data, int64_t rows, int64_t row_elements,
                    int64_t first_column, int64_t columns) {
  constexpr int64_t kLine = 64;
  const int64_t size = m.dtype == DType::kF32 ? 4 : 2;
  if (rows * columns * size > kMaxPrefetchBytes) return;
  for (int64_t r = 0; r < rows; ++r) {
    const char* row = static_cast<const char*>(data) + (r * row_elements + first_column) * size;
    for (int64_t at = 0; at < columns * size; at += kLine) __builtin_prefetch(row + at);
  }
}

void CopyRow(const ApplyAdapterArgs& args, const AdaptedLayer& layer, int64_t row) {
  float* const z = layer.RowOf(layer.z, row, args.choices);
  const float* const y = layer.RowOf(layer.y, row, args.choices);
  if (z != y) std::memcpy(z, y, static_cast<size_t>(layer.out) * sizeof(float));
}

// A row with an adapter, by the entry of the tables.
struct AdaptedRow {
  int32_t entry;
  int32_t row;

  auto operator<=>(const AdaptedRow&) const = default;
};

// scale * A x for ids.
void SelectColumns(const ApplyAdapterArgs& args, const AdapterRows& rows,
                   std::span<const AdaptedRow> adapted) {
  const AdapterMatrices& m = *rows.adapter;
  for (size_t i = 0; i < adapted.size(); ++i) {
    const int64_t id = args.IdOf(adapted[i].row);
    for (int64_t r = 0; r < m.rank; ++r) {
      const int64_t at = r * args.in + id;
      const float a = m.dtype == DType::kF32
                          ? static_cast<const float*>(m.a)[at]
                          : Bf16ToFloat(static_cast<const uint16_t*>(m.a)[at]);
      rows.low[i][r] = m.scale * a;
    }
  }
}

// Rows of one adapter on one thread.
class RowBlock {
 public:
  explicit RowBlock(const ApplyAdapterArgs& args) : args_(args) {
    rows_.in = args.in;
    for (int64_t i = 0; i < kAdapterRows; ++i) rows_.low[i] = low_[i];
  }

  // Computes A x of these rows, which have one entry. False if they have no adapter of `layer`.
  // `again`: the rows before had the same entry.
  template <AdapterDown kDown>
  bool Load(const AdaptedLayer& layer, std::span<const AdaptedRow> rows, bool again) {
    again_ = again;
    const AdapterMatrices& m = layer.table[rows[0].entry];
    if (m.empty()) {
      for (const AdaptedRow& row : rows) CopyRow(args_, layer, row.row);
      return false;
    }
    rows_.adapter = &m;
    rows_.out = layer.out;
    rows_.num_rows = static_cast<int64_t>(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      rows_.x[i] = args_.InputOf(rows[i].row);
      rows_.y[i] = layer.RowOf(layer.y, rows[i].row, args_.choices);
      rows_.z[i] = layer.RowOf(layer.z, rows[i].row, args_.choices);
    }
    if (args_.x.dtype == DType::kI32) {
      SelectColumns(args_, rows_, rows);
    } else if (m.rank > 0) {
      if (!again) PrefetchMatrix(m, m.a, m.rank, args_.in, 0, args_.in);
      kDown(rows_);
    }
    return true;
  }

  template <AdapterUp kUp>
  void Store(int64_t first_column, int64_t columns) {
    rows_.first_column = first_column;
    rows_.columns = columns;
    const AdapterMatrices& m = *rows_.adapter;
    if (!again_) PrefetchMatrix(m, m.b, m.rank, rows_.out, first_column, columns);
    kUp(rows_);
  }

 private:
  const ApplyAdapterArgs& args_;
  AdapterRows rows_;
  bool again_ = false;
  alignas(64) float low_[kAdapterRows][kMaxAdapterRank];
};

// `rows` are sorted.
template <AdapterDown kDown, AdapterUp kUp>
void RunRows(const ApplyAdapterArgs& args, std::span<const AdaptedRow> rows) {
  RowBlock block(args);
  int32_t before = -1;  // entry
  while (!rows.empty()) {
    size_t count = 1;
    while (count < std::min<size_t>(rows.size(), kAdapterRows) &&
           rows[count].entry == rows[0].entry) {
      ++count;
    }
    for (size_t i = 0; i < args.num_layers; ++i) {
      if (!block.Load<kDown>(args.layers[i], rows.first(count), rows[0].entry == before)) continue;
      block.Store<kUp>(0, args.layers[i].out);
    }
    before = rows[0].entry;
    rows = rows.subspan(count);
  }
}

int64_t UnitsOf(const AdaptedLayer& layer) { return (layer.out + kColumnUnit - 1) / kColumnUnit; }

// Units of columns [begin, end), numbered through the layers of a row, then through all of `rows`.
// A row's A x is computed by each thread that has some of its columns.
template <AdapterDown kDown, AdapterUp kUp>
void RunColumns(const ApplyAdapterArgs& args, std::span<const AdaptedRow> rows, int64_t begin,
                int64_t end) {
  RowBlock block(args);
  int64_t first = 0;  // unit of the layer
  for (size_t r = 0; r < rows.size() && first < end; ++r) {
    for (size_t i = 0; i < args.num_layers && first < end; ++i) {
      const AdaptedLayer& layer = args.layers[i];
      const int64_t from = std::max<int64_t>(0, begin - first) * kColumnUnit;
      const int64_t to = std::min(layer.out, (end - first) * kColumnUnit);
      first += UnitsOf(layer);
      const bool again = r > 0 && rows[r].entry == rows[r - 1].entry;
      if (from < to && block.Load<kDown>(layer, rows.subspan(r, 1), again)) {
        block.Store<kUp>(from, to - from);
      }
    }
  }
}

// False if the adapter leaves all layers of the call as they are.
bool ChangesSome(const ApplyAdapterArgs& args, int64_t entry) {
  for (size_t i = 0; i < args.num_layers; ++i) {
    if (!args.layers[i].table[entry].empty()) return true;
  }
  return false;
}

// The rows with an adapter, those of one adapter together: its matrices are read once for them.
// Copies the others.
std::span<const AdaptedRow> SortRows(const ApplyAdapterArgs& args, std::span<std::byte> memory) {
  AdaptedRow* const first = reinterpret_cast<AdaptedRow*>(memory.data());
  size_t count = 0;
  for (int64_t row = 0; row < args.num_rows; ++row) {
    const int64_t entry = args.EntryOf(row);
    if (entry == ApplyAdapterArgs::kNone || !ChangesSome(args, entry)) {
      for (size_t i = 0; i < args.num_layers; ++i) CopyRow(args, args.layers[i], row);
    } else {
      first[count++] = {.entry = static_cast<int32_t>(entry), .row = static_cast<int32_t>(row)};
    }
  }
  const std::span<AdaptedRow> rows(first, count);
  std::sort(rows.begin(), rows.end());
  return rows;
}

template <AdapterDown kDown, AdapterUp kUp>
void Run(const OpCall& call, KernelContext& context) {
  const ApplyAdapterArgs args = ToApplyAdapterArgs(call);
  const std::span<const AdaptedRow> rows = SortRows(args, context.workspace);
  if (rows.empty()) return;  // the usual step of a server whose clients use no adapter
  const int64_t in = args.x.dtype == DType::kI32 ? 1 : args.in;
  int64_t row_work = 0, up_work = 0, row_units = 0;  // multiply-adds of a row, those of B
  for (const AdaptedLayer& layer : std::span(args.layers).first(args.num_layers)) {
    const int64_t rank = layer.table[rows[0].entry].rank;
    row_work += (rank + 1) * (in + layer.out);
    up_work += (rank + 1) * layer.out;
    row_units += UnitsOf(layer);
  }
  const auto size = static_cast<int64_t>(rows.size());
  if (size >= kAdapterRows * context.pool->num_threads()) {
    context.pool->ParallelFor(size, std::max(kAdapterRows, kWorkPerChunk / row_work),
                              [&](int64_t begin, int64_t end, int) {
                                RunRows<kDown, kUp>(args,
                                                    rows.subspan(static_cast<size_t>(begin),
                                                                 static_cast<size_t>(end - begin)));
                              });
    return;
  }
  // Only B is divided: A x is computed by each thread.
  context.pool->ParallelFor(size * row_units,
                            std::max<int64_t>(1, kWorkPerChunk * row_units / up_work),
                            [&](int64_t begin, int64_t end, int) {
                              RunColumns<kDown, kUp>(args, rows, begin, end);
                            });
}

int64_t WorkspaceBytes(const OpCall& call, int32_t) {
  const TensorView& experts = call.inputs[apply_adapter::kExperts];
  const int64_t rows = experts.rank > 0 ? experts.Elements() : call.inputs[0].shape[0];
  return rows * static_cast<int64_t>(sizeof(AdaptedRow));
}

bool IsF32(const OpCall& call) {
  const auto narrow = [](const TensorView& view) { return IsNarrow(view.dtype); };
  return std::none_of(call.inputs.begin(), call.inputs.end(), narrow) &&
         std::none_of(call.outputs.begin(), call.outputs.end(), narrow);
}

constexpr F32Kernel kReference{.act_inputs = 0b10101010001, .run = ApplyAdapterReference};

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"apply_adapter", "avx512", 30,
     [](const device::Capabilities& caps, const OpCall& call) {
       return caps.cpu.avx512 && IsF32(call);
     },
     Run<AdapterDownAvx512, AdapterUpAvx512>, WorkspaceBytes},
    {"apply_adapter", "avx2", 20,
     [](const device::Capabilities& caps, const OpCall& call) {
       return caps.cpu.avx2 && IsF32(call);
     },
     Run<AdapterDownAvx2, AdapterUpAvx2>, WorkspaceBytes},
#endif
    {"apply_adapter", "portable", 10,
     [](const device::Capabilities&, const OpCall& call) { return IsF32(call); },
     Run<AdapterDownPortable, AdapterUpPortable>, WorkspaceBytes},
    WidenedReference<&kReference>("apply_adapter"),
};

constexpr AliasRule kAliases[] = {{.input = 4, .output = 0},
                                  {.input = 6, .output = 1},
                                  {.input = 8, .output = 2},
                                  {.input = 10, .output = 3}};
static_assert(std::size(kAliases) == kMaxAdaptedLayers);

constexpr OpDefinition kDefinition{"apply_adapter", CheckApplyAdapter, kKernels, kAliases};

}  // namespace

ApplyAdapterArgs ToApplyAdapterArgs(const OpCall& call) {
  const TensorView& experts = call.inputs[apply_adapter::kExperts];
  const TensorView& rows = call.inputs[apply_adapter::kRows];
  ApplyAdapterArgs args;
  args.x = call.inputs[apply_adapter::kX];
  args.slots = call.inputs[apply_adapter::kSlots].Data<const int32_t>();
  if (rows.rank > 0) args.rows = rows.Data<const int32_t>();
  const TensorView& first = call.inputs[apply_adapter::TableOperand(0)];
  if (experts.rank > 0) {
    args.experts = experts.Data<const int32_t>();
    args.choices = experts.RowElements();
    args.num_experts = first.shape[0];
  }
  args.in = first.shape[static_cast<size_t>(first.rank - 1)];
  args.num_rows = args.x.shape[0] * args.choices;
  args.num_layers = call.outputs.size();
  for (size_t i = 0; i < args.num_layers; ++i) {
    const TensorView& table = call.inputs[apply_adapter::TableOperand(i)];
    args.layers[i] = {.y = call.inputs[apply_adapter::ResultOperand(i)],
                      .z = call.outputs[i],
                      .table = static_cast<const AdapterMatrices*>(table.data),
                      .out = table.shape[static_cast<size_t>(table.rank - 2)]};
  }
  return args;
}

const OpDefinition& ApplyAdapterOp() { return kDefinition; }

}  // namespace pagemill::ops
