#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

constexpr uint32_t kThreads = 256;
constexpr int64_t kColumns = 4096;  // for each block

// Block (l, i, part) copies columns of row rows[l] + i of x, or zeros if x has no such row, behind
// the i rows before it.
template <typename T>
PAGEMILL_KERNEL CopyRow(Rows<const T> x, int64_t num_rows, const int32_t* rows, Rows<T> y,
                        int64_t size) {
  const int64_t from = rows[BlockIndex().x] + static_cast<int64_t>(BlockIndex().y);
  T* const to = y[BlockIndex().x] + BlockIndex().y * size;
  const int64_t begin = BlockIndex().z * kColumns;
  const int64_t end = begin + kColumns < size ? begin + kColumns : size;
  for (int64_t i = begin + ThreadIndex().x; i < end; i += kThreads) {
    to[i] = from < num_rows ? x[from][i] : FromFloat<T>(0);
  }
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& rows = call.inputs[1];
  const auto count = static_cast<uint32_t>(call.attributes->GetInt("count", 1));
  WithActType(x.dtype, [&]<typename T>(T) {
    Launch(*context.stream,
           {.blocks = {static_cast<uint32_t>(rows.shape[0]), count,
                       DivideUp(x.RowElements(), kColumns)},
            .threads = {kThreads}},
           CopyRow<T>, RowsOf<const T>(x), x.shape[0], rows.Data<const int32_t>(),
           RowsOf<T>(call.outputs[0]), x.RowElements());
  });
}

constexpr ops::Kernel kKernels[] = {{"select_rows", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> SelectRowsKernels() { return kKernels; }

}  // namespace pagemill::gpu
