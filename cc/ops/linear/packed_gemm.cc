#include "cc/ops/linear/packed_gemm.h"

#include <algorithm>
#include <vector>

#include "cc/ops/quantized/packed_integers.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/ops/row_maxima.h"

namespace pagemill::ops::linear {
namespace {

// Bytes of slices that one thread multiplies with all its chunks before the next slices: they stay
// in L2 (1 to 2 MiB on server cores) next to the streamed chunks.
constexpr int64_t kMaxGroupBytes = 256 << 10;
// Longer rows of a large x are multiplied in parts of about kPartColumns. A part of a group of
// slices, of kMaxBlockRows rows of x and of their outputs then fits into L2: data from beyond L2 is
// read once for at least 256 x 192 products per element of k.
constexpr int64_t kMaxWholeColumns = 2048;
constexpr int64_t kPartColumns = 1024;
constexpr int64_t kMaxBlockRows = 192;
// Units of work per thread, so that a descheduled thread delays the others little.
constexpr int64_t kUnitsPerThread = 8;
// Elements of x that a thread prepares at a time, 1 to 2 us. Below twice this, waking a second
// thread costs more than it saves.
constexpr int64_t kPrepareGrain = 4096;
// Threads share columns in blocks of this size.
constexpr int64_t kColumnBlock = 32;

int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Divides k into parts of equal length, except the last: part i is [Begin(i), Begin(i + 1)).
struct Parts {
  int64_t k;
  int64_t length;
  int64_t count;
  int64_t Begin(int64_t part) const { return std::min(k, part * length); }
  int64_t Length(int64_t part) const { return Begin(part + 1) - Begin(part); }
};

Parts SplitColumns(const PackedGemm& kernels, int64_t k) {
  const int64_t multiple = kernels.part_multiple;
  if (multiple == 0 || k <= kMaxWholeColumns) return {k, k, 1};
  const int64_t length = DivideUp(DivideUp(k, DivideUp(k, kPartColumns)), multiple) * multiple;
  return {k, length, DivideUp(k, length)};
}

// Divides the rows of x into chunks of nearly equal height: chunk s is rows [Begin(s), Begin(s +
// 1)), one part of k after the other.
struct Chunks {
  int64_t n;
  int64_t count;
  Parts parts;
  int64_t part_bytes;  // of a part, except the last
  int64_t bytes;       // of all parts of a chunk
  int64_t Begin(int64_t chunk) const { return chunk * n / count; }
  // The chunk of the row.
  int64_t Find(int64_t row) const { return ((row + 1) * count - 1) / n; }
};

Chunks MakeChunks(const PackedGemm& kernels, DType dtype, int64_t n, const Parts& parts) {
  const int64_t count = DivideUp(n, kernels.max_chunk_rows), rows = DivideUp(n, count);
  if (kernels.ReadsStored()) return {n, count, parts, 0, 0};
  const int64_t part_bytes = kernels.chunk_bytes(dtype, rows, parts.length);
  const int64_t last_bytes = kernels.chunk_bytes(dtype, rows, parts.Length(parts.count - 1));
  return {n, count, parts, part_bytes, (parts.count - 1) * part_bytes + last_bytes};
}

Chunks SplitRows(const PackedGemm& kernels, DType dtype, int64_t n, int64_t k) {
  const Chunks whole = MakeChunks(kernels, dtype, n, {k, k, 1});
  if (whole.count == 1 || whole.count * whole.bytes <= kernels.max_whole_bytes) return whole;
  return MakeChunks(kernels, dtype, n, SplitColumns(kernels, k));
}

void PrepareChunks(const PackedGemm& kernels, DType dtype, const InputRows& x, const Chunks& chunks,
                   KernelContext& context) {
  uint8_t* const workspace = reinterpret_cast<uint8_t*>(context.workspace.data());
  const auto prepare = [&](int64_t begin, int64_t end, int) {
    for (int64_t s = chunks.Find(begin); s < chunks.count && chunks.Begin(s) < end; ++s) {
      const int64_t first = chunks.Begin(s);
      const Parts parts = kernels.prepares_whole ? Parts{x.k, x.k, 1} : chunks.parts;
      for (int64_t i = 0; i < parts.count; ++i) {
        kernels.prepare(dtype,
                        {.rows = x.rows + first * x.stride + parts.Begin(i),
                         .stride = x.stride,
                         .n = chunks.Begin(s + 1) - first,
                         .k = parts.Length(i),
                         .begin = begin - first,
                         .end = end - first},
                        workspace + s * chunks.bytes + i * chunks.part_bytes);
      }
    }
  };
  const int64_t grain = DivideUp(kPrepareGrain, std::max<int64_t>(x.k, 1));
  if (!kernels.shares_columns || chunks.count > 1 || x.n < 2 * grain) {
    return context.pool->ParallelFor(x.n, grain, prepare);
  }
  // Rows of one chunk are prepared together. Each thread prepares a part of the columns; there are
  // no more parts than threads, since each part reads whole rows.
  const int64_t threads = context.pool->num_threads(), blocks = DivideUp(x.k, kColumnBlock);
  context.pool->ParallelFor(threads, 1, [&](int64_t begin, int64_t end, int) {
    InputRows columns = x;
    columns.first_column = begin * blocks / threads * kColumnBlock;
    columns.last_column = end * blocks / threads * kColumnBlock;
    kernels.prepare(dtype, columns, workspace);
  });
}

// One matrix of a call.
struct Matrix {
  const TensorView& w;
  const float* bias;  // or null
  SliceScales scales;
};

size_t WeightOperand(size_t index) { return 1 + 2 * index; }

Matrix ReadMatrix(const OpCall& call, size_t index) {
  const size_t at = WeightOperand(index), bias = at + 1;
  Matrix matrix = {call.inputs[at], nullptr, ScalesOf(call.inputs[at], 0)};
  if (bias < call.inputs.size() && call.inputs[bias].rank > 0) {
    matrix.bias = call.inputs[bias].Data<const float>();
  }
  return matrix;
}

// Memory of each thread for row maxima: the products of a chunk with a slice, then a RowMaximum for
// each row of x.
struct MaximaSpace {
  std::byte* bytes = nullptr;  // 64-byte aligned; null: products are written to the output
  int64_t chunk_rows = 0;
  int64_t rows = 0;

  int64_t ProductBytes() const { return chunk_rows * kSliceRows * int64_t{sizeof(float)}; }
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

// One matrix of a call, x prepared.
struct Product {
  const PackedGemm& kernels;
  const Matrix matrix;
  const TensorView& input;
  const TensorView& y;
  Chunks chunks;
  const uint8_t* x;       // prepared
  std::byte* scratch;     // of all threads
  int64_t scratch_bytes;  // of one
  int64_t slice_bytes;
  int64_t slice_part_bytes;  // of a part of k, except the last
  int64_t columns;           // of y that are computed
  MaximaSpace maxima = {};

  int64_t slices() const { return DivideUp(columns, kSliceRows); }

  // Slices [p_begin, p_end) times chunks [s_begin, s_end).
  void Multiply(int64_t p_begin, int64_t p_end, int64_t s_begin, int64_t s_end, int worker) const {
    if (maxima.bytes == nullptr) {
      return MultiplyParts(p_begin, p_end, s_begin, s_end, nullptr, worker);
    }
    for (int64_t s = s_begin; s < s_end; ++s) {
      for (int64_t p = p_begin; p < p_end; ++p) {
        MultiplyParts(p, p + 1, s, s + 1, maxima.Products(worker), worker);
        ObserveProducts(p, s, worker);
      }
    }
  }

  // Multiplies one part of k after the other, so that parts of slices and chunks stay in cache.
  // Each product prefetches a share of the next part of k, or of the next chunk if k is not
  // divided. Writes to `products`, [rows of x][kSliceRows], instead of y unless it is null.
  void MultiplyParts(int64_t p_begin, int64_t p_end, int64_t s_begin, int64_t s_end,
                     float* products, int worker) const {
    if (kernels.ReadsStored()) {
      return MultiplyStored(p_begin, p_end, s_begin, s_end, products, worker);
    }
    int64_t tile_config = 0;
    for (int64_t part = 0; part < chunks.parts.count; ++part) {
      for (int64_t s = s_begin; s < s_end; ++s) {
        for (int64_t p = p_begin; p < p_end; ++p) {
          PackedProduct product = PartOf(p, s, part);
          product.scratch = ScratchOf(worker);
          if (kernels.release_tiles != nullptr) product.tile_config = &tile_config;
          if (products != nullptr) {
            product.y = products;
            product.y_stride = kSliceRows;
          }
          if (part + 1 < chunks.parts.count) {
            product.prefetch[0] = Share(product.weights + slice_part_bytes, slice_part_bytes,
                                        s - s_begin, s_end - s_begin);
            product.prefetch[1] = Share(product.activations + chunks.part_bytes, chunks.part_bytes,
                                        p - p_begin, p_end - p_begin);
          } else if (chunks.parts.count == 1 && s + 1 < s_end) {
            product.prefetch[1] = Share(product.activations + chunks.bytes, chunks.bytes,
                                        p - p_begin, p_end - p_begin);
          }
          kernels.multiply(product);
        }
      }
    }
    if (tile_config != 0) kernels.release_tiles();
  }

  // Slices of stored weights are contiguous, so they are one product.
  void MultiplyStored(int64_t p_begin, int64_t p_end, int64_t s_begin, int64_t s_end,
                      float* products, int worker) const {
    for (int64_t s = s_begin; s < s_end; ++s) {
      PackedProduct product = PartOf(p_begin, s, 0);
      product.m = std::min(p_end * kSliceRows, columns) - p_begin * kSliceRows;
      product.scratch = ScratchOf(worker);
      if (products != nullptr) {
        product.y = products;
        product.y_stride = kSliceRows;
      }
      kernels.multiply(product);
    }
  }

  uint8_t* ScratchOf(int worker) const {
    return reinterpret_cast<uint8_t*>(scratch) + worker * scratch_bytes;
  }

  static PrefetchRange Share(const uint8_t* bytes, int64_t count, int64_t share, int64_t shares) {
    return {bytes + share * count / shares, bytes + (share + 1) * count / shares};
  }

  PackedProduct PartOf(int64_t p, int64_t s, int64_t part) const {
    const int64_t first = chunks.Begin(s), row = p * kSliceRows;
    const int64_t n = chunks.Begin(s + 1) - first;
    const int64_t part_bytes = kernels.prepares_whole
                                   ? kernels.chunk_bytes(matrix.w.dtype, n, chunks.parts.length)
                                   : chunks.part_bytes;
    const bool has_bias = matrix.bias != nullptr && part + 1 == chunks.parts.count;
    PackedProduct product = {
        .dtype = matrix.w.dtype,
        .weights = matrix.w.Data<const uint8_t>() + p * slice_bytes + part * slice_part_bytes,
        .activations = kernels.ReadsStored() ? input.Row<const uint8_t>(first)
                                             : x + s * chunks.bytes + part * part_bytes,
        .bias = has_bias ? matrix.bias + row : nullptr,
        .y = y.Row<float>(first) + row,
        .y_stride = y.row_stride_bytes / static_cast<int64_t>(sizeof(float)),
        .n = n,
        .m = std::min(kSliceRows, columns - row),
        .k = chunks.parts.Length(part),
        .scales = matrix.scales,
        .adds = part > 0,
        .weight_stride = matrix.w.row_stride_bytes,
        .x_stride = input.row_stride_bytes / static_cast<int64_t>(sizeof(float))};
    product.scales.first_row = row;
    return product;
  }

  // Updates the thread's maxima with its products of slice p and chunk s.
  void ObserveProducts(int64_t p, int64_t s, int worker) const {
    const int64_t first = chunks.Begin(s), column = p * kSliceRows;
    ObserveRows(maxima.Products(worker), kSliceRows, chunks.Begin(s + 1) - first,
                std::min(kSliceRows, columns - column), column, maxima.Maxima(worker) + first);
  }
};

void RunProduct(const Product& product, device::ThreadPool& pool) {
  const int64_t slices = product.slices();
  if (product.chunks.count == 1) {
    pool.ParallelFor(slices, 1, [&](int64_t begin, int64_t end, int worker) {
      product.Multiply(begin, end, 0, 1, worker);
    });
    return;
  }
  const Chunks& chunks = product.chunks;
  const int64_t group = std::max<int64_t>(
      1, std::min(kMaxGroupBytes / product.slice_part_bytes, slices / pool.num_threads()));
  const int64_t groups = DivideUp(slices, group);
  const int64_t least_blocks = chunks.parts.count == 1 ? 1 : DivideUp(chunks.n, kMaxBlockRows);
  const int64_t units = pool.num_threads() * kUnitsPerThread;
  const int64_t blocks = std::min(chunks.count, std::max(least_blocks, DivideUp(units, groups)));
  pool.ParallelFor(groups * blocks, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = unit / blocks * group;
      const int64_t block = unit % blocks;
      product.Multiply(first, std::min(first + group, slices), block * chunks.count / blocks,
                       (block + 1) * chunks.count / blocks, worker);
    }
  });
}

Chunks PrepareInput(const PackedGemm& kernels, const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& w = call.inputs[1];
  const int64_t n = x.shape[0];
  const Chunks chunks = SplitRows(kernels, w.dtype, n, w.shape[1]);
  if (kernels.ReadsStored()) return chunks;
  PrepareChunks(kernels, w.dtype,
                {x.Data<const float>(), x.row_stride_bytes / static_cast<int64_t>(sizeof(float)), n,
                 w.shape[1]},
                chunks, context);
  return chunks;
}

// Bytes between the slices of rows of k elements.
int64_t SliceBytes(const PackedGemm& kernels, const TensorView& w, int64_t k) {
  return kernels.ReadsStored() ? kSliceRows * w.row_stride_bytes : kernels.slice_bytes(w.dtype, k);
}

int64_t ScratchBytes(const PackedGemm& kernels, const TensorView& w) {
  return kernels.scratch_bytes == nullptr ? 0 : kernels.scratch_bytes(w.dtype, w.shape[1]);
}

Product ProductOf(const PackedGemm& kernels, const OpCall& call, size_t index, const Chunks& chunks,
                  const KernelContext& context) {
  const Matrix matrix = ReadMatrix(call, index);
  return {.kernels = kernels,
          .matrix = matrix,
          .input = call.inputs[0],
          .y = call.outputs[index],
          .chunks = chunks,
          .x = reinterpret_cast<const uint8_t*>(context.workspace.data()),
          .scratch = context.workspace.data() + chunks.count * chunks.bytes,
          .scratch_bytes = ScratchBytes(kernels, matrix.w),
          .slice_bytes = SliceBytes(kernels, matrix.w, matrix.w.shape[1]),
          .slice_part_bytes = SliceBytes(kernels, matrix.w, chunks.parts.length),
          .columns = matrix.w.shape[0]};
}

// Packs a matrix that is converted: each thread converts the rows of some slices to blocks and
// packs them.
Status PackConverted(const PackedGemm& kernels, const TensorView& weight, std::byte* packed,
                     device::ThreadPool& pool) {
  constexpr int64_t kRows = ConvertedMatrix::kTileRows;
  static_assert(kRows % kSliceRows == 0);
  const DType dtype = SliceDTypeOf(weight);
  const ConvertedMatrix matrix(weight, 0, dtype);
  PAGEMILL_RETURN_IF_ERROR(matrix.Check());
  const int64_t m = weight.shape[0], k = weight.shape[1];
  const int64_t slice_bytes = kernels.slice_bytes(dtype, k);
  const int64_t row_bytes = ConvertedRowBytes(dtype, k);
  pool.ParallelFor(DivideUp(m, kRows), 1, [&](int64_t begin, int64_t end, int) {
    std::vector<uint8_t> rows(static_cast<size_t>(std::min(m, kRows) * row_bytes));
    for (int64_t first = begin * kRows; first < std::min(m, end * kRows); first += kRows) {
      const int64_t last = std::min(m, first + kRows);
      matrix.WriteRows(first, last, rows.data());
      for (int64_t row = first; row < last; row += kSliceRows) {
        kernels.pack({dtype, rows.data() + (row - first) * row_bytes, row_bytes, k},
                     std::min(kSliceRows, last - row),
                     reinterpret_cast<uint8_t*>(packed) + row / kSliceRows * slice_bytes);
      }
    }
  });
  return OkStatus();
}

MaximaSpace SpaceOf(const PackedGemm& kernels, int64_t n) {
  return {.chunk_rows = std::min(n, kernels.max_chunk_rows), .rows = n};
}

}  // namespace

SliceScales ScalesOf(const TensorView& weight, int64_t matrix) {
  if (!IsScaled(weight)) return {};
  const TensorView scales = PartOf(weight, weight.parts->scales, matrix);
  return {.values = scales.Data<const float>(),
          .stride = scales.row_stride_bytes / static_cast<int64_t>(sizeof(float)),
          .block_rows = weight.parts->format.block_rows,
          .block_columns = weight.parts->format.block_columns};
}

TensorView PackedView(const TensorView& weight) {
  TensorView view = weight;
  view.dtype = SliceDTypeOf(weight);
  if (HasPackedIntegers(weight)) view.parts = nullptr;
  view.row_stride_bytes = 0;
  return view;
}

int64_t PackedBytes(const PackedGemm& kernels, const TensorView& weight) {
  return DivideUp(weight.shape[0], kSliceRows) *
         kernels.slice_bytes(SliceDTypeOf(weight), weight.shape[1]);
}

Status PackWeight(const PackedGemm& kernels, const TensorView& weight, std::byte* packed,
                  device::ThreadPool& pool) {
  if (IsConverted(weight)) return PackConverted(kernels, weight, packed, pool);
  const TensorView& rows = IsScaled(weight) ? weight.parts->values : weight;
  const int64_t m = rows.shape[0];
  const int64_t slice_bytes = kernels.slice_bytes(rows.dtype, rows.shape[1]);
  pool.ParallelFor(DivideUp(m, kSliceRows), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t row = p * kSliceRows;
      kernels.pack({rows.dtype, rows.Row<const uint8_t>(row), rows.row_stride_bytes, rows.shape[1]},
                   std::min(kSliceRows, m - row),
                   reinterpret_cast<uint8_t*>(packed) + p * slice_bytes);
    }
  });
  return OkStatus();
}

void RunPacked(const PackedGemm& kernels, const OpCall& call, KernelContext& context) {
  const int64_t n = call.inputs[0].shape[0];
  if (n == 0) return;
  const Chunks chunks = PrepareInput(kernels, call, context);
  const size_t matrices = call.outputs.size();
  const auto product = [&](size_t i) { return ProductOf(kernels, call, i, chunks, context); };
  if (chunks.count > 1 || matrices == 1) {
    for (size_t i = 0; i < matrices; ++i) RunProduct(product(i), *context.pool);
    return;
  }
  // Few rows, for which synchronization costs more: the slices of all matrices are one list.
  int64_t ends[kMaxMatrices];
  int64_t slices = 0;
  for (size_t i = 0; i < matrices; ++i) {
    slices += DivideUp(call.inputs[WeightOperand(i)].shape[0], kSliceRows);
    ends[i] = slices;
  }
  context.pool->ParallelFor(slices, 1, [&](int64_t begin, int64_t end, int worker) {
    for (size_t i = 0; i < matrices; ++i) {
      const int64_t first = i == 0 ? 0 : ends[i - 1];
      const int64_t low = std::max(begin, first), high = std::min(end, ends[i]);
      if (low < high) product(i).Multiply(low - first, high - first, 0, 1, worker);
    }
  });
}

void RunPackedMaxima(const PackedGemm& kernels, const OpCall& call, KernelContext& context,
                     int64_t columns, RowMaximum* maxima) {
  const int64_t n = call.inputs[0].shape[0];
  std::fill_n(maxima, n, RowMaximum());
  if (n == 0 || columns == 0) return;
  const Chunks chunks = PrepareInput(kernels, call, context);
  Product product = ProductOf(kernels, call, 0, chunks, context);
  product.columns = columns;
  product.maxima = SpaceOf(kernels, n);
  const int32_t workers = context.pool->num_threads();
  product.maxima.bytes = product.scratch + workers * product.scratch_bytes;
  for (int32_t w = 0; w < workers; ++w) std::fill_n(product.maxima.Maxima(w), n, RowMaximum());
  RunProduct(product, *context.pool);
  for (int32_t w = 0; w < workers; ++w) {
    for (int64_t i = 0; i < n; ++i) Merge(product.maxima.Maxima(w)[i], &maxima[i]);
  }
}

int64_t PackedWorkspaceBytes(const PackedGemm& kernels, const OpCall& call, int32_t num_threads) {
  const TensorView& w = call.inputs[1];
  const int64_t n = call.inputs[0].shape[0];
  // Upper bounds for any smaller number of rows: the number of chunks and, with each part of k
  // padded, their size.
  const int64_t count = DivideUp(n, kernels.max_chunk_rows);
  const int64_t rows = count > 1 ? count * kernels.max_chunk_rows : n;
  const Parts parts = SplitColumns(kernels, w.shape[1]);
  const int64_t chunks = n == 0 ? 0 : count * MakeChunks(kernels, w.dtype, rows, parts).bytes;
  const bool may_use_maxima = call.outputs.size() == 1;
  return chunks + num_threads * (ScratchBytes(kernels, w) +
                                 (may_use_maxima ? SpaceOf(kernels, n).WorkerBytes() : 0));
}

}  // namespace pagemill::ops::linear
