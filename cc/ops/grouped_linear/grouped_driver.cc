#include "cc/ops/grouped_linear/grouped_driver.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "cc/ops/grouped_linear/expert_rows.h"
#include "cc/ops/grouped_linear/grouped_linear.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/linear/packed_gemm.h"
#include "cc/ops/quantized/quantized.h"

namespace pagemill::ops::grouped_linear {
namespace {

using linear::kSliceRows;

// Elements of x that are worth handing to another thread to prepare: 1 to 2 us.
constexpr int64_t kPrepareGrain = 4096;
// Bytes of slices that one thread multiplies with all chunks of an expert before the next slices:
// they stay in L2 next to the streamed chunks.
constexpr int64_t kMaxGroupBytes = 256 << 10;

constexpr int64_t kFloatBytes = sizeof(float);

int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }
int64_t RoundUp(int64_t bytes) { return DivideUp(bytes, 64) * 64; }

// Floats between consecutive rows of a chunk; none if rows are not evenly spaced.
std::optional<int64_t> EvenStride(const RoutedRows& rows, const Chunk& chunk) {
  if (chunk.count == 1) return 0;
  const float* const first = rows.At(chunk.rows[0]);
  const int64_t stride = rows.At(chunk.rows[1]) - first;
  for (int64_t i = 2; i < chunk.count; ++i) {
    if (rows.At(chunk.rows[i]) - first != i * stride) return std::nullopt;
  }
  return stride;
}

void Gather(const RoutedRows& rows, const Chunk& chunk, int64_t width, float* to) {
  for (int64_t i = 0; i < chunk.count; ++i) {
    std::memcpy(to + i * width, rows.At(chunk.rows[i]), static_cast<size_t>(width * kFloatBytes));
  }
}

// Calls product(y, stride) to compute columns [column, column + m) of a chunk's outputs: in place
// if its rows are evenly spaced, else in `block`, from which they are copied.
template <class Product>
void WriteOutputs(const RoutedRows& y, const Chunk& chunk, int64_t column, int64_t m, float* block,
                  const Product& product) {
  if (const std::optional<int64_t> stride = EvenStride(y, chunk)) {
    return product(y.At(chunk.rows[0]) + column, *stride);
  }
  product(block, kSliceRows);
  for (int64_t i = 0; i < chunk.count; ++i) {
    std::memcpy(y.At(chunk.rows[i]) + column, block + i * kSliceRows,
                static_cast<size_t>(m * kFloatBytes));
  }
}

// One weight stack of a call.
struct Stack {
  const OpCall& call;
  size_t output;

  const TensorView& view() const { return call.inputs[WeightOperand(output)]; }
  int64_t m() const { return view().shape[1]; }
  int64_t k() const { return view().shape[2]; }
  TensorView Matrix(int64_t expert) const { return ExpertView(view(), expert); }  // as stored
  int64_t slices() const { return DivideUp(m(), kSliceRows); }
  // Outputs of a slice.
  int64_t Columns(int64_t slice) const { return std::min(kSliceRows, m() - slice * kSliceRows); }
  const float* Bias(int64_t expert, int64_t slice) const {
    const float* const bias = BiasOf(call, output, expert);
    return bias == nullptr ? nullptr : bias + slice * kSliceRows;
  }
};

// The rows of one expert, prepared.
struct PreparedGroup {
  int64_t expert;
  std::span<const Chunk> chunks;
  const int64_t* offsets;  // of each chunk in `prepared`
  const uint8_t* prepared;
};

// A packed GEMM, with the weights of a call.
class StackGemm {
 public:
  StackGemm(const linear::PackedGemm& kernels, const OpCall& call)
      : kernels_(kernels), dtype_(call.inputs[WeightOperand(0)].dtype) {}

  int64_t max_chunk_rows() const { return kernels_.max_chunk_rows; }
  // If weights are read as stored, a chunk is consecutive rows of x.
  int64_t ChunkBytes(int64_t n, int64_t k) const {
    return kernels_.ReadsStored() ? RoundUp(n * k * kFloatBytes)
                                  : kernels_.chunk_bytes(dtype_, n, k);
  }
  // Room for gathered rows or the products of a chunk and a slice, then for the GEMM's own scratch.
  int64_t ScratchBytes(int64_t n, int64_t k) const {
    return RowBytes(n, k) +
           (kernels_.scratch_bytes == nullptr ? 0 : kernels_.scratch_bytes(dtype_, k));
  }

  void Prepare(const RoutedRows& x, const Chunk& chunk, int64_t k, float* scratch,
               uint8_t* to) const {
    if (kernels_.ReadsStored()) return Gather(x, chunk, k, reinterpret_cast<float*>(to));
    const std::optional<int64_t> stride = EvenStride(x, chunk);
    if (!stride) Gather(x, chunk, k, scratch);
    kernels_.prepare(dtype_,
                     {.rows = stride ? x.At(chunk.rows[0]) : scratch,
                      .stride = stride.value_or(k),
                      .n = chunk.count,
                      .k = k},
                     to);
  }

  void Multiply(const Stack& stack, const PreparedGroup& group, int64_t p_begin, int64_t p_end,
                float* scratch, int64_t* tile_config) const {
    const int64_t slice_bytes = SliceBytes(stack);
    const uint8_t* const slices =
        kernels_.ReadsStored()
            ? stack.Matrix(group.expert).Data<const uint8_t>()
            : stack.view().Data<const uint8_t>() + group.expert * stack.slices() * slice_bytes;
    uint8_t* const own =
        reinterpret_cast<uint8_t*>(scratch) + RowBytes(max_chunk_rows(), stack.k());
    const RoutedRows y = OutputRowsOf(stack.call, stack.output);
    linear::SliceScales scales = linear::ScalesOf(stack.view(), group.expert);
    for (size_t s = 0; s < group.chunks.size(); ++s) {
      const Chunk& chunk = group.chunks[s];
      for (int64_t p = p_begin; p < p_end; ++p) {
        const int64_t m = stack.Columns(p);
        scales.first_row = p * kSliceRows;
        WriteOutputs(y, chunk, p * kSliceRows, m, scratch, [&](float* to, int64_t stride) {
          kernels_.multiply(
              {.dtype = dtype_,
               .weights = slices + p * slice_bytes,
               .activations = group.prepared + group.offsets[s],
               .bias = stack.Bias(group.expert, p),
               .y = to,
               .y_stride = stride,
               .n = chunk.count,
               .m = m,
               .k = stack.k(),
               .scales = scales,
               .weight_stride = stack.Matrix(group.expert).row_stride_bytes,
               .x_stride = stack.k(),
               .scratch = own,
               .tile_config = kernels_.release_tiles == nullptr ? nullptr : tile_config});
        });
      }
    }
  }

  int64_t SliceBytes(const Stack& stack) const {
    return kernels_.ReadsStored() ? kSliceRows * stack.Matrix(0).row_stride_bytes
                                  : kernels_.slice_bytes(dtype_, stack.k());
  }
  void ReleaseTiles(int64_t tile_config) const {
    if (tile_config != 0) kernels_.release_tiles();
  }

 private:
  // If weights are read as stored, Prepare() gathers rows, and scratch only holds products.
  int64_t RowBytes(int64_t n, int64_t k) const {
    return RoundUp(n * (kernels_.ReadsStored() ? kSliceRows : std::max(k, kSliceRows)) *
                   kFloatBytes);
  }

  const linear::PackedGemm& kernels_;
  DType dtype_;
};

// Workspace of a call: sorted rows, the offset of each chunk, scratch of each thread, chunks.
struct Space {
  Space(const StackGemm& gemm, const OpCall& call)
      : rows(call.inputs[1].Elements()),
        experts(call.inputs[WeightOperand(0)].shape[0]),
        k(call.inputs[WeightOperand(0)].shape[2]),
        max_rows(gemm.max_chunk_rows()),
        sort_bytes(ExpertRowsBytes(rows, experts, max_rows)),
        offset_bytes(RoundUp(MaxChunks(rows, experts, max_rows) * int64_t{sizeof(int64_t)})),
        scratch_bytes(gemm.ScratchBytes(max_rows, k)) {}

  // Upper bound of the bytes of all chunks, however rows are divided.
  int64_t MaxChunkBytes(const StackGemm& gemm) const {
    const int64_t one = gemm.ChunkBytes(1, k);
    int64_t more = 0;
    for (int64_t n = 2; n <= max_rows; ++n) {
      more = std::max(more, DivideUp(gemm.ChunkBytes(n, k) - one, n - 1));
    }
    const int64_t chunks = MaxChunks(rows, experts, max_rows);
    return RoundUp(chunks * one + (rows - chunks) * more);
  }

  int64_t Bytes(const StackGemm& gemm, int32_t threads) const {
    return sort_bytes + offset_bytes + threads * scratch_bytes + MaxChunkBytes(gemm);
  }

  int64_t rows, experts, k, max_rows;
  int64_t sort_bytes, offset_bytes;
  int64_t scratch_bytes;  // of a thread
};

// A call with sorted rows.
class GroupedProduct {
 public:
  GroupedProduct(const StackGemm& gemm, const OpCall& call, KernelContext& context)
      : gemm_(gemm),
        call_(call),
        pool_(*context.pool),
        space_(gemm, call),
        sorted_(SortRows(call.inputs[1], space_.experts, space_.max_rows, context.workspace)),
        offsets_(reinterpret_cast<int64_t*>(context.workspace.data() + space_.sort_bytes)),
        scratch_(reinterpret_cast<uint8_t*>(offsets_) + space_.offset_bytes),
        prepared_(scratch_ + pool_.num_threads() * space_.scratch_bytes) {}

  void Prepare() {
    int64_t end = 0;
    for (size_t s = 0; s < sorted_.chunks.size(); ++s) {
      offsets_[s] = end;
      end += gemm_.ChunkBytes(sorted_.chunks[s].count, space_.k);
    }
    const RoutedRows x = InputRowsOf(call_);
    const int64_t chunks = static_cast<int64_t>(sorted_.chunks.size());
    const int64_t grain = std::max<int64_t>(1, kPrepareGrain * chunks / (space_.rows * space_.k));
    pool_.ParallelFor(chunks, grain, [&](int64_t first, int64_t last, int worker) {
      for (int64_t s = first; s < last; ++s) {
        gemm_.Prepare(x, sorted_.chunks[static_cast<size_t>(s)], space_.k, Scratch(worker),
                      prepared_ + offsets_[s]);
      }
    });
  }

  // Threads share one list: the slices of all stacks of an expert, then those of the next expert.
  void Multiply() const {
    int64_t ends[kMaxMatrices];
    int64_t slices = 0;
    for (size_t i = 0; i < call_.outputs.size(); ++i) {
      slices += Stack{call_, i}.slices();
      ends[i] = slices;
    }
    const std::span<const int64_t> of_stacks(ends, call_.outputs.size());
    const int64_t most = std::max<int64_t>(1, kMaxGroupBytes / gemm_.SliceBytes({call_, 0}));
    const int64_t units = static_cast<int64_t>(sorted_.groups.size()) * slices;
    pool_.ParallelFor(units, 1, [&](int64_t unit, int64_t last, int worker) {
      int64_t tile_config = 0;
      while (unit < last) {
        const PreparedGroup group = Group(static_cast<size_t>(unit / slices));
        const int64_t slice = unit % slices;
        const size_t i =
            static_cast<size_t>(std::ranges::upper_bound(of_stacks, slice) - of_stacks.begin());
        const int64_t count = std::min({ends[i] - slice, last - unit, most});
        const int64_t first = slice - (i == 0 ? 0 : ends[i - 1]);
        gemm_.Multiply({call_, i}, group, first, first + count, Scratch(worker), &tile_config);
        unit += count;
      }
      gemm_.ReleaseTiles(tile_config);
    });
  }

  void ClearRowsWithoutExpert() const {
    for (size_t i = 0; i < call_.outputs.size(); ++i) {
      const RoutedRows y = OutputRowsOf(call_, i);
      for (const int32_t row : sorted_.without_expert) {
        std::fill_n(y.At(row), Stack{call_, i}.m(), 0.0f);
      }
    }
  }

 private:
  float* Scratch(int worker) const {
    return reinterpret_cast<float*>(scratch_ + worker * space_.scratch_bytes);
  }

  PreparedGroup Group(size_t index) const {
    const ExpertGroup& group = sorted_.groups[index];
    const size_t first = static_cast<size_t>(group.first_chunk);
    const size_t count = static_cast<size_t>(group.end_chunk - group.first_chunk);
    return {group.expert, sorted_.chunks.subspan(first, count), offsets_ + first, prepared_};
  }

  const StackGemm& gemm_;
  const OpCall& call_;
  device::ThreadPool& pool_;
  const Space space_;
  const ExpertRows sorted_;
  int64_t* const offsets_;  // of each chunk in `prepared_`
  uint8_t* const scratch_;  // of each thread
  uint8_t* const prepared_;
};

}  // namespace

void RunPacked(const linear::PackedGemm& kernels, const OpCall& call, KernelContext& context) {
  if (call.inputs[1].Elements() == 0) return;
  const StackGemm gemm(kernels, call);
  GroupedProduct product(gemm, call, context);
  product.Prepare();
  product.Multiply();
  product.ClearRowsWithoutExpert();
}

int64_t PackedWorkspaceBytes(const linear::PackedGemm& kernels, const OpCall& call,
                             int32_t num_threads) {
  const StackGemm gemm(kernels, call);
  return Space(gemm, call).Bytes(gemm, num_threads);
}

int64_t PackedStackBytes(const linear::PackedGemm& kernels, const TensorView& stack) {
  return stack.shape[0] * linear::PackedBytes(kernels, MatrixOfStack(stack, 0).view());
}

Status PackStack(const linear::PackedGemm& kernels, const TensorView& stack, std::byte* packed,
                 device::ThreadPool& pool) {
  const int64_t bytes = linear::PackedBytes(kernels, MatrixOfStack(stack, 0).view());
  for (int64_t e = 0; e < stack.shape[0]; ++e) {
    PAGEMILL_RETURN_IF_ERROR(
        linear::PackWeight(kernels, MatrixOfStack(stack, e).view(), packed + e * bytes, pool));
  }
  return OkStatus();
}

}  // namespace pagemill::ops::grouped_linear
