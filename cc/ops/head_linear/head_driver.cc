#include "cc/ops/head_linear/head_driver.h"

#include <algorithm>

#include "cc/ops/linear/packed_gemm_kernels.h"

namespace pagemill::ops::head_linear {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
// Outputs that a thread computes at a time: the rows of a slice of `linear`; or columns, whole
// blocks of every format.
constexpr int64_t kRows = linear::kSliceRows;
constexpr int64_t kColumns = 256;

bool IsTransposed(const OpCall& call) { return call.attributes->GetInt("transposed", 0) != 0; }

// True if transposed products have a kernel for `dtype`; other weights are decoded to f32.
bool HasKernel(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

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
    kernels_.rows->multiply(
        {.dtype = w_.dtype,
         .weights = w_.Row<const uint8_t>(head) + begin * row_bytes,
         .activations = reinterpret_cast<const uint8_t*>(x_.Data<const float>() + head * k),
         .bias = nullptr,
         .y = y_.Data<float>() + head * width_ + begin,
         .y_stride = y_.row_stride_bytes / kFloatBytes,
         .n = x_.shape[0],
         .m = end - begin,
         .k = k,
         .weight_stride = row_bytes,
         .x_stride = x_.row_stride_bytes / kFloatBytes,
         .scratch = reinterpret_cast<uint8_t*>(scratch)});
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
        kernels_.dequantize(w_.dtype, columns + row * RowBytes(w_.dtype, width_), end - begin,
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
  const int64_t scratch_bytes = WorkspaceBytes(kernels, call, 1);
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

int64_t WorkspaceBytes(const HeadKernels& kernels, const OpCall& call, int32_t num_threads) {
  const int64_t k = call.inputs[0].shape[2];
  const DType dtype = call.inputs[1].dtype;
  if (!IsTransposed(call)) return num_threads * kernels.rows->scratch_bytes(dtype, k);
  return HasKernel(dtype) ? 0 : num_threads * k * kColumns * kFloatBytes;
}

}  // namespace pagemill::ops::head_linear
