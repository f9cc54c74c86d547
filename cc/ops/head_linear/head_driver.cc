#include "cc/ops/head_linear/head_driver.h"

#include <algorithm>

#include "cc/ops/linear/float_gemm.h"

namespace pagemill::ops::head_linear {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
// Outputs that a thread computes at a time: rows of W, as many as `linear` has in a slice; or
// columns, whole blocks of every format.
constexpr int64_t kRows = 32;
constexpr int64_t kColumns = 256;

bool IsTransposed(const OpCall& call) { return call.attributes->GetInt("transposed", 0) != 0; }

// Are rows of W decoded before they are multiplied?
bool IsDecoded(DType dtype, bool transposed) {
  return dtype != DType::kF32 && !(transposed && dtype == DType::kBF16);
}

// One call, and the memory of one thread.
class Product {
 public:
  Product(const HeadKernels& kernels, const OpCall& call)
      : kernels_(kernels),
        x_(call.inputs[0]),
        w_(call.inputs[1]),
        y_(call.outputs[0]),
        width_(y_.shape[2]) {}

  // Outputs [begin, end) of a head, by rows of its matrix.
  void MultiplyRows(int64_t head, int64_t begin, int64_t end, std::byte* scratch) const {
    const int64_t k = x_.shape[2], row_bytes = RowBytes(w_.dtype, k);
    const linear::Operands o = {.dtype = w_.dtype,
                                .weights = w_.Row<const uint8_t>(head),
                                .weight_stride = row_bytes,
                                .bias = nullptr,
                                .x = x_.Data<const float>() + head * k,
                                .x_stride = x_.row_stride_bytes / kFloatBytes,
                                .y = y_.Data<float>() + head * width_,
                                .y_stride = y_.row_stride_bytes / kFloatBytes,
                                .n = x_.shape[0],
                                .m = width_,
                                .k = k};
    if (o.n <= kernels_.rows->max_direct_n) return kernels_.rows->direct(o, begin, end);
    const uint8_t* const rows = o.weights + begin * row_bytes;
    if (w_.dtype == DType::kF32) {
      return kernels_.rows->multiply(o, {rows, row_bytes, begin, end});
    }
    const int64_t stride = linear::FloatStride(k);
    for (int64_t m = 0; m < end - begin; ++m) {
      kernels_.rows->dequantize(w_.dtype, rows + m * row_bytes, k,
                                reinterpret_cast<float*>(scratch + m * stride));
    }
    const uint8_t* const decoded = reinterpret_cast<const uint8_t*>(scratch);
    kernels_.rows->multiply(o, {decoded, stride, begin, end});
  }

  // Outputs [begin, end) of a head, by columns of its matrix.
  void SumRows(int64_t head, int64_t begin, int64_t end, std::byte* scratch) const {
    const int64_t k = x_.shape[2];
    const uint8_t* const columns =
        w_.Row<const uint8_t>(head) + begin * RowBytes(w_.dtype, kColumns) / kColumns;
    RowSums sums = {.x = x_.Data<const float>() + head * k,
                    .x_stride = x_.row_stride_bytes / kFloatBytes,
                    .weights = columns,
                    .weight_stride = width_,
                    .y = y_.Data<float>() + head * width_ + begin,
                    .y_stride = y_.row_stride_bytes / kFloatBytes,
                    .n = x_.shape[0],
                    .k = k,
                    .columns = end - begin};
    if (w_.dtype == DType::kBF16) return kernels_.sums->bf16(sums);
    if (w_.dtype != DType::kF32) {
      float* const decoded = reinterpret_cast<float*>(scratch);
      for (int64_t row = 0; row < k; ++row) {
        kernels_.rows->dequantize(w_.dtype, columns + row * RowBytes(w_.dtype, width_), end - begin,
                                  decoded + row * kColumns);
      }
      sums.weights = decoded;
      sums.weight_stride = kColumns;
    }
    kernels_.sums->f32(sums);
  }

 private:
  const HeadKernels& kernels_;
  const TensorView& x_;
  const TensorView& w_;
  const TensorView& y_;
  const int64_t width_;  // of a head of y
};

}  // namespace

void RunKernels(const HeadKernels& kernels, const OpCall& call, KernelContext& context) {
  if (call.inputs[0].shape[0] == 0) return;
  const bool transposed = IsTransposed(call);
  const int64_t width = call.outputs[0].shape[2], size = transposed ? kColumns : kRows;
  const int64_t blocks = (width + size - 1) / size;
  const int64_t scratch_bytes = WorkspaceBytes(call, 1);
  const Product product(kernels, call);
  context.pool->ParallelFor(
      call.inputs[0].shape[1] * blocks, /*grain=*/1, [&](int64_t first, int64_t last, int worker) {
        std::byte* const scratch = context.workspace.data() + worker * scratch_bytes;
        for (int64_t i = first; i < last; ++i) {
          const int64_t head = i / blocks, begin = i % blocks * size;
          const int64_t end = std::min(begin + size, width);
          if (transposed) {
            product.SumRows(head, begin, end, scratch);
          } else {
            product.MultiplyRows(head, begin, end, scratch);
          }
        }
      });
}

int64_t WorkspaceBytes(const OpCall& call, int32_t num_threads) {
  const bool transposed = IsTransposed(call);
  if (!IsDecoded(call.inputs[1].dtype, transposed)) return 0;
  const int64_t k = call.inputs[0].shape[2];
  return num_threads * (transposed ? k * kColumns * kFloatBytes : kRows * linear::FloatStride(k));
}

}  // namespace pagemill::ops::head_linear
