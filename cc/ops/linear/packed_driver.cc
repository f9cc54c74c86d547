#include "cc/ops/linear/packed_driver.h"

#include <algorithm>

#include "cc/ops/row_maxima.h"

namespace pagemill::ops::linear {
namespace {

// Panels that one thread multiplies with all its strips before the next ones: they stay in L2 (1 to
// 2 MiB on server cores) beside the strips that pass by.
constexpr int64_t kMaxGroupBytes = 256 << 10;
// Units of work per thread, so that a thread that loses its core for a while delays little.
constexpr int64_t kUnitsPerThread = 8;
// Elements of x that a thread prepares at a time, 1 to 2 us. Below twice this, waking a second
// thread costs more than it saves.
constexpr int64_t kPrepareGrain = 4096;

int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Rows of x in strips of nearly equal height: strip s is rows [Begin(s), Begin(s + 1)).
struct Strips {
  int64_t n;
  int64_t count;
  int64_t bytes;  // of each
  int64_t Begin(int64_t strip) const { return strip * n / count; }
  // The strip that has the row.
  int64_t Find(int64_t row) const { return ((row + 1) * count - 1) / n; }
};

Strips SplitRows(const PackedKernelSet& kernels, DType dtype, int64_t n, int64_t k) {
  const int64_t count = DivideUp(n, kernels.max_strip_rows);
  return {n, count, kernels.strip_bytes(dtype, DivideUp(n, count), k)};
}

void PrepareStrips(const PackedKernelSet& kernels, DType dtype, const InputRows& x,
                   const Strips& strips, KernelContext& context) {
  uint8_t* const workspace = reinterpret_cast<uint8_t*>(context.workspace.data());
  const auto prepare = [&](int64_t begin, int64_t end, int) {
    for (int64_t s = strips.Find(begin); s < strips.count && strips.Begin(s) < end; ++s) {
      const int64_t first = strips.Begin(s);
      kernels.prepare(dtype,
                      {.rows = x.rows + first * x.stride,
                       .stride = x.stride,
                       .n = strips.Begin(s + 1) - first,
                       .k = x.k,
                       .begin = begin - first,
                       .end = end - first},
                      workspace + s * strips.bytes);
    }
  };
  context.pool->ParallelFor(x.n, DivideUp(kPrepareGrain, std::max<int64_t>(x.k, 1)), prepare);
}

// One matrix of a call.
struct Matrix {
  const TensorView& w;
  const float* bias;  // or null
  PanelScales scales;
};

size_t WeightOperand(const PackedKernelSet& kernels, size_t index) {
  return 1 + (kernels.has_scales ? 3 : 2) * index;
}

Matrix ReadMatrix(const PackedKernelSet& kernels, const OpCall& call, size_t index) {
  const size_t at = WeightOperand(kernels, index);
  Matrix matrix = {call.inputs[at], nullptr, {}};
  if (kernels.has_scales) {
    const TensorView& scales = call.inputs[at + 1];
    matrix.scales = {.values = scales.Data<const float>(),
                     .stride = scales.row_stride_bytes / static_cast<int64_t>(sizeof(float)),
                     .block_rows = call.attributes->GetInt("block_rows", 1),
                     .block_columns = call.attributes->GetInt("block_columns", matrix.w.shape[1])};
  }
  const size_t bias = at + (kernels.has_scales ? 2 : 1);
  if (bias < call.inputs.size() && call.inputs[bias].rank > 0) {
    matrix.bias = call.inputs[bias].Data<const float>();
  }
  return matrix;
}

// Where a worker keeps what it has seen of each row of x, when only maxima are wanted: the products
// of a strip with a panel, then a RowMaximum for each row.
struct MaximaSpace {
  std::byte* bytes = nullptr;  // 64-byte aligned; null: products go to the output
  int64_t strip_rows = 0;
  int64_t rows = 0;

  int64_t ProductBytes() const { return strip_rows * kPanelRows * int64_t{sizeof(float)}; }
  int64_t WorkerBytes() const {
    return ProductBytes() + DivideUp(rows * int64_t{sizeof(RowMaximum)}, 64) * 64;
  }
  float* Products(int worker) const {
    return reinterpret_cast<float*>(bytes + worker * WorkerBytes());
  }
  RowMaximum* Maxima(int worker) const {
    return reinterpret_cast<RowMaximum*>(bytes + worker * WorkerBytes() + ProductBytes());
  }
};

// One call, x prepared.
struct Product {
  const PackedKernelSet& kernels;
  const Matrix matrix;
  const TensorView& y;
  Strips strips;
  const uint8_t* x;
  int64_t panel_bytes;
  int64_t columns;  // of y that are wanted
  MaximaSpace maxima = {};

  int64_t panels() const { return DivideUp(columns, kPanelRows); }

  // Panels [p_begin, p_end) times strips [s_begin, s_end).
  void Multiply(int64_t p_begin, int64_t p_end, int64_t s_begin, int64_t s_end, int worker) const {
    const TensorView& w = matrix.w;
    PanelScales scales = matrix.scales;
    for (int64_t s = s_begin; s < s_end; ++s) {
      const int64_t first = strips.Begin(s);
      for (int64_t p = p_begin; p < p_end; ++p) {
        const int64_t row = p * kPanelRows;
        scales.first_row = row;
        PackedProduct product = {
            .dtype = w.dtype,
            .panel = w.Data<const uint8_t>() + p * panel_bytes,
            .strip = x + s * strips.bytes,
            .bias = matrix.bias == nullptr ? nullptr : matrix.bias + row,
            .y = y.Row<float>(first) + row,
            .y_stride = y.row_stride_bytes / static_cast<int64_t>(sizeof(float)),
            .n = strips.Begin(s + 1) - first,
            .m = std::min(kPanelRows, columns - row),
            .k = w.shape[1],
            .scales = scales};
        if (maxima.bytes != nullptr) {
          product.y = maxima.Products(worker);
          product.y_stride = kPanelRows;
        }
        kernels.multiply(product);
        if (maxima.bytes != nullptr) ObserveRows(product, first, row, worker);
      }
    }
  }

  // What `product` has left for rows of x from `first` on, columns from `column` on.
  void ObserveRows(const PackedProduct& product, int64_t first, int64_t column, int worker) const {
    for (int64_t n = 0; n < product.n; ++n) {
      Observe(product.y + n * kPanelRows, product.m, column, maxima.Maxima(worker) + first + n);
    }
  }
};

void RunProduct(const Product& product, device::ThreadPool& pool) {
  const int64_t panels = product.panels();
  if (product.strips.count == 1) {
    pool.ParallelFor(panels, 1, [&](int64_t begin, int64_t end, int worker) {
      product.Multiply(begin, end, 0, 1, worker);
    });
    return;
  }
  const int64_t units = pool.num_threads() * kUnitsPerThread;
  const int64_t group = std::max<int64_t>(
      1, std::min(kMaxGroupBytes / product.panel_bytes, panels / pool.num_threads()));
  const int64_t groups = DivideUp(panels, group);
  const int64_t parts = std::min(product.strips.count, DivideUp(units, groups));
  pool.ParallelFor(groups * parts, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = unit / parts * group;
      const int64_t part = unit % parts;
      product.Multiply(first, std::min(first + group, panels), part * product.strips.count / parts,
                       (part + 1) * product.strips.count / parts, worker);
    }
  });
}

Strips PrepareInput(const PackedKernelSet& kernels, const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& w = call.inputs[1];
  const int64_t n = x.shape[0];
  const Strips strips = SplitRows(kernels, w.dtype, n, w.shape[1]);
  PrepareStrips(kernels, w.dtype,
                {x.Data<const float>(), x.row_stride_bytes / static_cast<int64_t>(sizeof(float)), n,
                 w.shape[1]},
                strips, context);
  return strips;
}

Product ProductOf(const PackedKernelSet& kernels, const OpCall& call, size_t index,
                  const Strips& strips, const KernelContext& context) {
  const Matrix matrix = ReadMatrix(kernels, call, index);
  return {.kernels = kernels,
          .matrix = matrix,
          .y = call.outputs[index],
          .strips = strips,
          .x = reinterpret_cast<const uint8_t*>(context.workspace.data()),
          .panel_bytes = kernels.panel_bytes(matrix.w.dtype, matrix.w.shape[1]),
          .columns = matrix.w.shape[0]};
}

MaximaSpace SpaceOf(const PackedKernelSet& kernels, int64_t n) {
  return {.strip_rows = std::min(n, kernels.max_strip_rows), .rows = n};
}

}  // namespace

int64_t PackedBytes(const PackedKernelSet& kernels, const TensorView& weight) {
  return DivideUp(weight.shape[0], kPanelRows) * kernels.panel_bytes(weight.dtype, weight.shape[1]);
}

void PackPanels(const PackedKernelSet& kernels, const TensorView& weight, std::byte* packed,
                device::ThreadPool& pool) {
  const int64_t m = weight.shape[0];
  const int64_t panel_bytes = kernels.panel_bytes(weight.dtype, weight.shape[1]);
  pool.ParallelFor(DivideUp(m, kPanelRows), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t row = p * kPanelRows;
      kernels.pack(
          {weight.dtype, weight.Row<const uint8_t>(row), weight.row_stride_bytes, weight.shape[1]},
          std::min(kPanelRows, m - row), reinterpret_cast<uint8_t*>(packed) + p * panel_bytes);
    }
  });
}

void RunPacked(const PackedKernelSet& kernels, const OpCall& call, KernelContext& context) {
  const int64_t n = call.inputs[0].shape[0];
  if (n == 0) return;
  const Strips strips = PrepareInput(kernels, call, context);
  const size_t matrices = call.outputs.size();
  const auto product = [&](size_t i) { return ProductOf(kernels, call, i, strips, context); };
  if (strips.count > 1 || matrices == 1) {
    for (size_t i = 0; i < matrices; ++i) RunProduct(product(i), *context.pool);
    return;
  }
  // Few rows: meeting costs more than it does below. The panels of all matrices are one list.
  int64_t ends[kMaxMatrices];
  int64_t panels = 0;
  for (size_t i = 0; i < matrices; ++i) {
    panels += DivideUp(call.inputs[WeightOperand(kernels, i)].shape[0], kPanelRows);
    ends[i] = panels;
  }
  context.pool->ParallelFor(panels, 1, [&](int64_t begin, int64_t end, int worker) {
    for (size_t i = 0; i < matrices; ++i) {
      const int64_t first = i == 0 ? 0 : ends[i - 1];
      const int64_t low = std::max(begin, first), high = std::min(end, ends[i]);
      if (low < high) product(i).Multiply(low - first, high - first, 0, 1, worker);
    }
  });
}

void RunPackedMaxima(const PackedKernelSet& kernels, const OpCall& call, KernelContext& context,
                     int64_t columns, RowMaximum* maxima) {
  const int64_t n = call.inputs[0].shape[0];
  std::fill_n(maxima, n, RowMaximum());
  if (n == 0 || columns == 0) return;
  const Strips strips = PrepareInput(kernels, call, context);
  Product product = ProductOf(kernels, call, 0, strips, context);
  product.columns = columns;
  product.maxima = SpaceOf(kernels, n);
  product.maxima.bytes = context.workspace.data() + strips.count * strips.bytes;
  const int32_t workers = context.pool->num_threads();
  for (int32_t w = 0; w < workers; ++w) std::fill_n(product.maxima.Maxima(w), n, RowMaximum());
  RunProduct(product, *context.pool);
  for (int32_t w = 0; w < workers; ++w) {
    for (int64_t i = 0; i < n; ++i) Merge(product.maxima.Maxima(w)[i], &maxima[i]);
  }
}

int64_t PackedWorkspaceBytes(const PackedKernelSet& kernels, const OpCall& call,
                             int32_t num_threads) {
  const TensorView& w = call.inputs[1];
  const int64_t n = call.inputs[0].shape[0];
  // Any smaller number of rows makes no more strips than this, and none is larger.
  const int64_t strips =
      DivideUp(n, kernels.max_strip_rows) *
      kernels.strip_bytes(w.dtype, std::min(n, kernels.max_strip_rows), w.shape[1]);
  return strips + (call.outputs.size() == 1 ? num_threads * SpaceOf(kernels, n).WorkerBytes() : 0);
}

}  // namespace pagemill::ops::linear
