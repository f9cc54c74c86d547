#include "cuda/ops/linear/converted_weights.h"

#include <cstring>

#include "cc/ops/quantized/converted_blocks.h"
#include "cc/ops/quantized/packed_integers.h"

namespace pagemill::gpu {
namespace {

constexpr int64_t kBlock = 32;  // columns
constexpr int64_t kWordColumns = 8;

// Blocks of mxfp4, matrix by matrix: words of the values of all rows, then a byte of scale for each
// block, and zeros up to a multiple of 64 bytes.
struct Mxfp4Shape {
  int64_t matrices, rows, columns;

  static Mxfp4Shape Of(const TensorView& w) {
    const auto size = [&](int32_t from_last) {
      return w.shape[static_cast<size_t>(w.rank - from_last)];
    };
    return {w.rank == 3 ? w.shape[0] : 1, size(2), size(1)};
  }
  int64_t AllRows() const { return matrices * rows; }
  int64_t RowWords() const { return columns / kWordColumns; }
  int64_t RowScales() const { return columns / kBlock; }
  int64_t ScalesAt() const { return rows * RowWords() * static_cast<int64_t>(sizeof(uint32_t)); }
  int64_t MatrixBytes() const { return (ScalesAt() + rows * RowScales() + 63) / 64 * 64; }
  int64_t Bytes() const { return matrices * MatrixBytes(); }
};

// Row `row` of all matrices.
const uint8_t* RowOf(const TensorView& w, const Mxfp4Shape& shape, int64_t row) {
  if (w.rank == 2) return w.Row<const uint8_t>(row);
  return w.Row<const uint8_t>(row / shape.rows) +
         row % shape.rows * RowBytes(w.dtype, shape.columns);
}

// A block is a scale and 16 bytes, of which byte i has column i in its low bits and i + 16 in the
// others.
void PackRow(const uint8_t* blocks, const Mxfp4Shape& shape, uint32_t* words, uint8_t* scales) {
  for (int64_t b = 0; b < shape.RowScales(); ++b, blocks += Info(DType::kMxfp4).block_bytes) {
    scales[b] = blocks[0];
    for (int64_t first = 0; first < kBlock; first += kWordColumns, ++words) {
      const uint8_t* const codes = blocks + 1 + first % 16;
      const int shift = first < 16 ? 0 : 4;
      *words = 0;
      for (int i = 0; i < kWordColumns; ++i) {
        *words |= static_cast<uint32_t>(codes[i] >> shift & 15) << 4 * i;
      }
    }
  }
}

Status PackMxfp4(const TensorView& w, std::byte* packed, device::ThreadPool& pool) {
  const Mxfp4Shape shape = Mxfp4Shape::Of(w);
  for (int64_t row = 0; row < shape.AllRows(); ++row) {
    PAGEMILL_RETURN_IF_ERROR(
        ops::CheckConvertible(w.dtype, w.dtype, RowOf(w, shape, row), shape.columns));
  }
  pool.ParallelFor(shape.AllRows(), /*grain=*/16, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      std::byte* const matrix = packed + row / shape.rows * shape.MatrixBytes();
      const int64_t in_matrix = row % shape.rows;
      PackRow(
          RowOf(w, shape, row), shape,
          reinterpret_cast<uint32_t*>(matrix) + in_matrix * shape.RowWords(),
          reinterpret_cast<uint8_t*>(matrix) + shape.ScalesAt() + in_matrix * shape.RowScales());
    }
  });
  const int64_t end_of_scales = shape.ScalesAt() + shape.rows * shape.RowScales();
  for (int64_t matrix = 0; matrix < shape.matrices; ++matrix) {
    std::memset(packed + matrix * shape.MatrixBytes() + end_of_scales, 0,
                static_cast<size_t>(shape.MatrixBytes() - end_of_scales));
  }
  return OkStatus();
}

}  // namespace

int64_t ConvertedBytes(const TensorView& w) {
  return w.dtype == DType::kMxfp4 ? Mxfp4Shape::Of(w).Bytes() : ops::BlockRowsBytes(w);
}

Status PackConverted(const TensorView& w, std::byte* packed, device::ThreadPool& pool) {
  return w.dtype == DType::kMxfp4 ? PackMxfp4(w, packed, pool)
                                  : ops::PackBlockRows(w, packed, pool);
}

TensorView ConvertedView(const TensorView& w) {
  if (w.dtype != DType::kMxfp4) return ops::AsBlocks(w);
  TensorView view = w;
  view.row_stride_bytes = 0;
  return view;
}

Mxfp4Parts::Mxfp4Parts(const TensorView& packed) : view_(packed) {
  const Mxfp4Shape shape = Mxfp4Shape::Of(packed);
  auto* const data = static_cast<std::byte*>(packed.data);
  const auto part = [&](std::byte* of, DType dtype, int64_t columns) {
    if (packed.rank == 2) return TensorView::Dense(of, dtype, {shape.rows, columns});
    TensorView stack = TensorView::Dense(of, dtype, {shape.matrices, shape.rows, columns});
    stack.row_stride_bytes = shape.MatrixBytes();
    return stack;
  };
  parts_ = {.format = {.layout = QuantizedLayout::kMxfp4, .block_columns = kBlock},
            .values = part(data, DType::kI32, shape.RowWords()),
            .scales = part(data + shape.ScalesAt(), DType::kU8, shape.RowScales()),
            .zeros = {},
            .groups = {}};
  view_.dtype = DType::kU4;
  view_.parts = &parts_;
}

}  // namespace pagemill::gpu
