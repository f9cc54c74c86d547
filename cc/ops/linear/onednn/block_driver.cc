#include "cc/ops/linear/onednn/block_driver.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace pagemill::ops::linear {
namespace {

// Target number of blocks of a matrix, so that threads share them evenly.
constexpr int64_t kBlocksToAimAt = 12;
// Units of work per thread, so that a descheduled thread delays the others little.
constexpr int64_t kUnitsPerThread = 8;
// Elements of x that a thread rounds at a time. Below twice this, waking a second thread costs more
// than it saves.
constexpr int64_t kRoundGrain = 16384;
constexpr int64_t kLineBytes = 64;

int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }
int64_t RoundUp(int64_t value, int64_t multiple) { return DivideUp(value, multiple) * multiple; }

// Divides the rows of W into blocks of equal shape, except the last.
struct Blocks {
  explicit Blocks(const TensorView& weight) : m(weight.shape[0]) {
    k = RoundUp(weight.shape[1], kBlockKMultiple);
    rows = std::clamp(m / kBlocksToAimAt / kBlockRowMultiple * kBlockRowMultiple, kBlockRowMultiple,
                      kMaxBlockRows);
    count = DivideUp(m, rows);
  }
  int64_t FirstRow(int64_t block) const { return block * rows; }
  int64_t RowsOf(int64_t block) const { return std::min(rows, m - FirstRow(block)); }
  BlockShape ShapeOf(int64_t block) const { return {RoundUp(RowsOf(block), kBlockRowMultiple), k}; }
  int64_t OffsetOf(int64_t block) const { return block * BlockShape{rows, k}.bytes(); }

  int64_t m;
  int64_t k;
  int64_t rows;
  int64_t count;
};

// Rows of x of the next product, given `left` remaining rows.
int64_t NextHeight(int64_t left) {
  if (left < kHeightStep) return left;
  return std::min(kMaxHeight, left / kHeightStep * kHeightStep);
}

int64_t RoundedBytes(int64_t n, int64_t padded_k) { return RoundUp(n * padded_k * 2, kLineBytes); }

// Bytes of the outputs of one product, before bias and stride are applied.
constexpr int64_t kProductBytes = kMaxHeight * kMaxBlockRows * static_cast<int64_t>(sizeof(float));

// One matrix of a call, x rounded.
struct Matrix {
  Matrix(const OpCall& call, size_t index)
      : weight(call.inputs[1 + 2 * index]), y(call.outputs[index]), blocks(weight) {
    const size_t at = 2 + 2 * index;
    const bool has_bias = at < call.inputs.size() && call.inputs[at].rank > 0;
    bias = has_bias ? call.inputs[at].Data<const float>() : nullptr;
  }

  // Copies a product's outputs to y, adding the bias.
  void Store(int64_t block, int64_t row, int64_t height, const float* from) const {
    const int64_t count = blocks.RowsOf(block), stride = blocks.ShapeOf(block).rows;
    const float* const b = bias == nullptr ? nullptr : bias + blocks.FirstRow(block);
    for (int64_t n = 0; n < height; ++n) {
      float* const to = y.Row<float>(row + n) + blocks.FirstRow(block);
      const float* const sums = from + n * stride;
      if (b == nullptr) {
        std::memcpy(to, sums, count * sizeof(float));
      } else {
        for (int64_t i = 0; i < count; ++i) to[i] = sums[i] + b[i];
      }
    }
  }

  const TensorView& weight;
  const TensorView& y;
  const float* bias;
  Blocks blocks;
};

void RoundX(const BlockLibrary& library, const TensorView& x, int64_t k, uint16_t* out,
            device::ThreadPool& pool) {
  const int64_t n = x.shape[0], padded_k = RoundUp(k, kBlockKMultiple);
  const auto round = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      library.round(x.Row<const float>(i), k, padded_k, out + i * padded_k);
    }
  };
  if (n * k < 2 * kRoundGrain) return round(0, n, 0);
  pool.ParallelFor(n, DivideUp(kRoundGrain, k), round);
}

}  // namespace

bool BlocksSupport(const BlockLibrary& library, const device::Capabilities& caps,
                   const OpCall& call) {
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const TensorView& weight = call.inputs[1 + 2 * i];
    if (weight.dtype != DType::kBF16) return false;
    const Blocks blocks(weight);
    if (blocks.count == 0 || blocks.k == 0) return false;
    if (!library.supports(caps, blocks.ShapeOf(0))) return false;
    if (!library.supports(caps, blocks.ShapeOf(blocks.count - 1))) return false;
  }
  return true;
}

int64_t BlocksBytes(const TensorView& weight) {
  const Blocks blocks(weight);
  if (blocks.count == 0) return 0;
  const int64_t last = blocks.count - 1;
  return blocks.OffsetOf(last) + blocks.ShapeOf(last).bytes();
}

void PackBlocks(const BlockLibrary& library, const TensorView& weight, std::byte* packed,
                device::ThreadPool& pool) {
  const Blocks blocks(weight);
  pool.ParallelFor(blocks.count, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<uint16_t> rows;
    for (int64_t b = begin; b < end; ++b) {
      const BlockShape shape = blocks.ShapeOf(b);
      rows.assign(shape.rows * shape.k, 0);
      for (int64_t i = 0; i < blocks.RowsOf(b); ++i) {
        std::memcpy(rows.data() + i * shape.k, weight.Row<const uint8_t>(blocks.FirstRow(b) + i),
                    weight.shape[1] * 2);
      }
      library.pack(shape, rows.data(), packed + blocks.OffsetOf(b));
    }
  });
}

void RunBlocks(const BlockLibrary& library, const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const int64_t n = x.shape[0], k = call.inputs[1].shape[1];
  if (n == 0) return;
  const int64_t padded_k = RoundUp(k, kBlockKMultiple);
  uint16_t* const rounded = reinterpret_cast<uint16_t*>(context.workspace.data());
  RoundX(library, x, k, rounded, *context.pool);
  std::byte* const products = context.workspace.data() + RoundedBytes(n, padded_k);

  // The blocks of all matrices are one list; if there are few, x is divided, too.
  int64_t ends[kMaxMatrices];
  int64_t blocks = 0;
  const size_t matrices = call.outputs.size();
  for (size_t i = 0; i < matrices; ++i) {
    blocks += Blocks(call.inputs[1 + 2 * i]).count;
    ends[i] = blocks;
  }
  const int64_t chunks = DivideUp(n, kMaxHeight);
  const int64_t units = context.pool->num_threads() * kUnitsPerThread;
  const int64_t parts = std::min(chunks, DivideUp(units, blocks));
  context.pool->ParallelFor(blocks * parts, 1, [&](int64_t begin, int64_t end, int worker) {
    float* const sums = reinterpret_cast<float*>(products + worker * kProductBytes);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t listed = unit / parts, part = unit % parts;
      const size_t index = std::upper_bound(ends, ends + matrices, listed) - ends;
      const Matrix matrix(call, index);
      const int64_t block = listed - (index == 0 ? 0 : ends[index - 1]);
      const int64_t last = std::min(n, (part + 1) * chunks / parts * kMaxHeight);
      for (int64_t row = part * chunks / parts * kMaxHeight; row < last;) {
        const int64_t height = NextHeight(last - row);
        library.multiply(
            {.shape = matrix.blocks.ShapeOf(block),
             .height = height,
             .x = rounded + row * padded_k,
             .packed = matrix.weight.Data<const std::byte>() + matrix.blocks.OffsetOf(block),
             .y = sums});
        matrix.Store(block, row, height, sums);
        row += height;
      }
    }
  });
}

int64_t BlocksWorkspaceBytes(const OpCall& call, int32_t num_threads) {
  const int64_t padded_k = RoundUp(call.inputs[1].shape[1], kBlockKMultiple);
  return RoundedBytes(call.inputs[0].shape[0], padded_k) + num_threads * kProductBytes;
}

}  // namespace pagemill::ops::linear
