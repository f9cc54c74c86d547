#include "cc/ops/linear/linear.h"

#include <algorithm>
#include <vector>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/linear/awq_tiles.h"
#include "cuda/ops/linear/converted_weights.h"
#include "cuda/ops/linear/cublas_lt_fp8.h"
#include "cuda/ops/linear/cublas_lt_product.h"
#include "cuda/ops/linear/f8_matrix_cores.h"
#include "cuda/ops/linear/f8_stages.h"
#include "cuda/ops/linear/int8_tensor_cores.h"
#include "cuda/ops/linear/joined_products.h"
#include "cuda/ops/linear/matrix_cores.h"
#include "cuda/ops/linear/rounded_groups.h"
#include "cuda/ops/linear/row_products.h"
#include "cuda/ops/linear/tensor_cores.h"
#include "cuda/ops/linear/weights.h"
#include "cuda/ops/linear/wgmma_decoded.h"
#include "cuda/ops/linear/wgmma_rows.h"

namespace pagemill::gpu {
namespace {

struct ProductShape {
  int64_t rows, outputs, columns;  // N, M, K
  bool wide;                       // y is f32
};

// Block (outputs, rows): some outputs of kRowsAtOnce rows of x.
template <typename T, typename W>
PAGEMILL_KERNEL MultiplyRows(ProductShape shape, Rows<const T> x, W w, const float* bias, Rows<T> y,
                             Rows<float> wide_y) {
  const BlockOutputs<W> outputs(int64_t{BlockIndex().x} * BlockOutputs<W>::kCount, shape.outputs);
  const int64_t first_row = int64_t{BlockIndex().y} * kRowsAtOnce;
  const int64_t rows_left = shape.rows - first_row;
  const int rows = rows_left < kRowsAtOnce ? static_cast<int>(rows_left) : kRowsAtOnce;
  const T* of_x[kRowsAtOnce];
  PAGEMILL_UNROLL
  for (int row = 0; row < kRowsAtOnce; ++row) of_x[row] = x[first_row + row];
  float sums[kRowsAtOnce];
  outputs.Multiply(of_x, rows, w, /*matrix=*/0, shape.columns, sums);
  if (!outputs.HasSums()) return;
  const int64_t m = outputs.own();
  PAGEMILL_UNROLL
  for (int row = 0; row < kRowsAtOnce; ++row) {
    if (row >= rows) break;
    const float sum = bias == nullptr ? sums[row] : sums[row] + bias[m];
    if (shape.wide) {
      wide_y[first_row + row][m] = sum;
    } else {
      y[first_row + row][m] = FromFloat<T>(sum);
    }
  }
}

template <typename T>
void Multiply(const TensorView& x, const TensorView& w, const float* bias, const TensorView& y,
              device::Stream& stream) {
  const ProductShape shape = {x.shape[0], w.shape[0], w.shape[1],
                              y.dtype == DType::kF32 && !std::is_same_v<T, float>};
  WithMatrix(w, [&]<typename W>(const W& weights) {
    Launch(stream,
           {.blocks = {DivideUp(shape.outputs, BlockOutputs<W>::kCount),
                       DivideUp(shape.rows, kRowsAtOnce)},
            .threads = {BlockOutputs<W>::kThreads}},
           MultiplyRows<T, W>, shape, RowsOf<const T>(x), weights, bias, RowsOf<T>(y),
           RowsOf<float>(y));
  });
}

void MultiplyPlain(const TensorView& x, const TensorView& w, const float* bias,
                   const TensorView& y, device::Stream& stream) {
  WithActType(x.dtype, [&]<typename T>(T) { Multiply<T>(x, w, bias, y, stream); });
}

// The bias of a matrix of a call, by its number; null if it is missing.
const TensorView* BiasOf(const ops::OpCall& call, size_t matrix) {
  const size_t input = 2 + 2 * matrix;
  const bool has_bias = input < call.inputs.size() && call.inputs[input].rank > 0;
  return has_bias ? &call.inputs[input] : nullptr;
}

// Calls multiply(w, bias, y) for each matrix of a call; a missing bias is null.
template <typename Multiply>
void ForMatrices(const ops::OpCall& call, const Multiply& multiply) {
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const TensorView* const bias = BiasOf(call, i);
    multiply(call.inputs[1 + 2 * i], bias == nullptr ? nullptr : bias->Data<const float>(),
             call.outputs[i]);
  }
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  ForMatrices(call, [&](const TensorView& w, const float* bias, const TensorView& y) {
    MultiplyPlain(call.inputs[0], w, bias, y, *context.stream);
  });
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && AreReadable(call.inputs[1]);
}

// The products of a call whose rows vector loads can read. The others are multiplied.
std::vector<Product> TakeAligned(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  std::vector<Product> aligned;
  ForMatrices(call, [&](const TensorView& w, const float* bias, const TensorView& y) {
    if (HasAlignedRows(x) && AreReadOnTensorCores(w)) {
      aligned.push_back({w, bias, y});
    } else {
      MultiplyPlain(x, w, bias, y, *context.stream);
    }
  });
  return aligned;
}

void RunOnTensorCores(const ops::OpCall& call, ops::KernelContext& context) {
  MultiplyOnTensorCores(call.inputs[0], TakeAligned(call, context), *context.stream);
}

// Kernels that read weights as they are stored leave to others calls whose weights all fit tiles.
template <bool kInTiles = false>
bool SupportsTensorCores(const device::Capabilities& caps, const ops::OpCall& call) {
  bool fit_tiles = true;
  ForMatrices(call, [&](const TensorView& w, const float*, const TensorView&) {
    fit_tiles &= FitAwqTiles(w);
  });
  return OnEveryGpu(caps, call) && fit_tiles == kInTiles &&
         FitsTensorCores(caps, call.inputs[0], call.inputs[1]);
}

template <bool kInTiles = false>
bool SupportsCublasLt(const device::Capabilities& caps, const ops::OpCall& call) {
  return SupportsTensorCores<kInTiles>(caps, call) &&
         FitsCublasLt(caps, call.inputs[0], call.inputs[1]);
}

void RunByCublasLt(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  std::vector<Product> products = TakeAligned(call, context);
#if !defined(__HIP__)
  const auto others = std::ranges::stable_partition(products, [&](const Product& product) {
    return AreDecodedRows(x, product.w, *context.stream);
  });
  MultiplyDecodedRows(x, {products.begin(), others.begin()}, context.workspace.data(),
                      *context.stream);
  products.erase(products.begin(), others.begin());
#endif
  MultiplyByCublasLt(x, products, context.workspace.data(), *context.stream);
}

int64_t CublasLtBytes(const ops::OpCall& call, int32_t) {
  const int64_t rows = call.inputs[0].shape[0];
  int64_t most = 0;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    most = std::max(most, CublasLtProductBytes(call.inputs[0], call.inputs[1 + 2 * i],
                                               BiasOf(call, i) != nullptr, call.outputs[i]));
  }
  if (call.inputs[1].dtype == DType::kBF16) {
    return most == 0 ? 0 : most + JoinedProducts::Bytes(rows, call.outputs);
  }
#if !defined(__HIP__)
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    most = std::max(most, DecodedRowsBytes(rows, call.inputs[1 + 2 * i]));
  }
#endif
  return most;
}

bool SupportsCublasLtFp8(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && FitsCublasLtFp8(caps, call.inputs[0], call.inputs[1]);
}

void RunByCublasLtInFp8(const ops::OpCall& call, ops::KernelContext& context) {
  MultiplyByCublasLtInFp8(call.inputs[0], TakeAligned(call, context), context.workspace.data(),
                          *context.stream);
}

int64_t CublasLtFp8Bytes(const ops::OpCall& call, int32_t num_threads) {
  Fp8Workspace workspace(call.inputs[0], call.inputs[1]);
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    workspace.Add(call.inputs[1 + 2 * i], BiasOf(call, i) != nullptr, call.outputs[i]);
  }
  const int64_t bytes = workspace.bytes();
  const int64_t joined = JoinedProducts::Bytes(call.inputs[0].shape[0], call.outputs);
  return std::max(bytes == 0 ? 0 : bytes + joined, CublasLtBytes(call, num_threads));
}

#if !defined(__HIP__)
// kHasLibrary: cuBLASLt multiplies more rows of x.
template <bool kHasLibrary>
bool SupportsWgmma(const device::Capabilities& caps, const ops::OpCall& call) {
  return SupportsTensorCores<>(caps, call) && FitsWgmmaRows(caps, call.inputs[0], call.inputs[1]) &&
         SupportsCublasLtFp8(caps, call) == kHasLibrary;
}

template <bool kHasLibrary>
void RunByWgmma(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  if (x.shape[0] > kMostWgmmaRows) {
    return kHasLibrary ? RunByCublasLtInFp8(call, context) : RunOnTensorCores(call, context);
  }
  std::vector<Product> products = TakeAligned(call, context);
  const auto left = std::ranges::partition(products, [](const Product& product) {
    return product.w.shape[0] > 0 && AreF8StagesRead(product.w);
  });
  MultiplyOnTensorCores(x, left, *context.stream);
  MultiplyWgmmaRows(x, {products.begin(), left.begin()}, context.workspace.data(),
                    *context.stream);
}

template <bool kHasLibrary>
int64_t WgmmaBytes(const ops::OpCall& call, int32_t num_threads) {
  const int64_t bytes = WgmmaRowsBytes(call.inputs[0].shape[0]);
  return kHasLibrary ? std::max(bytes, CublasLtFp8Bytes(call, num_threads)) : bytes;
}
#endif

#if !defined(__CUDACC__)
template <int kLanes>
bool SupportsMatrixCores(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && FitsMatrixCores(caps, kLanes, call.inputs[0], call.inputs[1]);
}

template <int kLanes>
void RunOnMatrixCores(const ops::OpCall& call, ops::KernelContext& context) {
  for (const auto& [w, bias, y] : TakeAligned(call, context)) {
    MultiplyOnMatrixCores<kLanes>(call.inputs[0], w, bias, y, *context.stream);
  }
}

template <int kLanes>
bool SupportsF8MatrixCores(const device::Capabilities& caps, const ops::OpCall& call) {
  bool fit = OnEveryGpu(caps, call);
  ForMatrices(call, [&](const TensorView& w, const float*, const TensorView&) {
    fit = fit && FitsF8MatrixCores(caps, kLanes, call.inputs[0], w);
  });
  return fit;
}

template <int kLanes>
void RunInF8OnMatrixCores(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const std::vector<Product> products = TakeAligned(call, context);
  if (products.empty()) return;
  const auto layout = RoundedGroups::Of(x);
  std::byte* const memory = context.workspace.data();
  layout.Round(x, memory, *context.stream);
  for (const auto& [w, bias, y] : products) {
    if (AreF8StagesRead(w)) {
      MultiplyInF8<kLanes>(layout.Values(memory), layout.Scales(memory), w, bias, y,
                           *context.stream);
    } else {
      MultiplyOnMatrixCores<kLanes>(x, w, bias, y, *context.stream);
    }
  }
}

int64_t F8MatrixCoreBytes(const ops::OpCall& call, int32_t) {
  return RoundedGroups::Of(call.inputs[0]).bytes();
}
#endif

void RunInInt8(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  std::byte* const rounded = context.workspace.data();
  RoundRows(x, call.inputs[1].shape[1], rounded, *context.stream);
  ForMatrices(call, [&](const TensorView& w, const float* bias, const TensorView& y) {
    MultiplyInInt8(rounded, x.shape[0], w, bias, y, *context.stream);
  });
}

int64_t Int8WorkspaceBytes(const ops::OpCall& call, int32_t) {
  return RoundedRowsBytes(call.inputs[0].shape[0], call.inputs[1].shape[1]);
}

bool SupportsInt8(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && FitsInt8TensorCores(caps, call.inputs[1]);
}

constexpr ops::WeightPacking kConverted = ConvertedWeights(ops::kWeightInputs);

constexpr ops::Kernel kCublasLt = {.op = "linear",
                                   .name = "cublaslt",
                                   .priority = 25,
                                   .supports = SupportsCublasLt<>,
                                   .run = RunByCublasLt,
                                   .workspace_bytes = CublasLtBytes,
                                   .activations = ops::Precision::kBf16,
                                   .varies_with_batch = true};

constexpr ops::Kernel kTensorCore = {.op = "linear",
                                     .name = "tensor_core",
                                     .priority = 20,
                                     .supports = SupportsTensorCores<>,
                                     .run = RunOnTensorCores,
                                     .activations = ops::Precision::kBf16};

#if !defined(__CUDACC__)
template <int kLanes>
constexpr ops::Kernel kMatrixCore = {.op = "linear",
                                     .name = "matrix_core",
                                     .priority = 20,
                                     .supports = SupportsMatrixCores<kLanes>,
                                     .run = RunOnMatrixCores<kLanes>,
                                     .activations = ops::Precision::kBf16};
#endif

constexpr ops::Kernel kGpu = {
    .op = "linear", .name = "gpu", .priority = 10, .supports = Supports, .run = Run};

constexpr ops::Kernel kKernels[] = {
#if !defined(__HIP__)
    {.op = "linear",
     .name = "wgmma",
     .priority = 35,
     .supports = SupportsWgmma</*kHasLibrary=*/true>,
     .run = RunByWgmma<true>,
     .workspace_bytes = WgmmaBytes<true>,
     .activations = ops::Precision::kF8,
     .varies_with_batch = true},
    {.op = "linear",
     .name = "wgmma",
     .priority = 35,
     .supports = SupportsWgmma</*kHasLibrary=*/false>,
     .run = RunByWgmma<false>,
     .workspace_bytes = WgmmaBytes<false>,
     .activations = ops::Precision::kF8,
     .varies_with_batch = true},
#endif
    kCublasLt,
    OfConverted<SupportsCublasLt<>, kConverted>(kCublasLt),
    {.op = "linear",
     .name = "cublaslt",
     .priority = 25,
     .supports = SupportsCublasLt</*kInTiles=*/true>,
     .run = RunByCublasLt,
     .workspace_bytes = CublasLtBytes,
     .activations = ops::Precision::kBf16,
     .packing = &kAwqTiles,
     .varies_with_batch = true},
    {.op = "linear",
     .name = "cublaslt_fp8",
     .priority = 30,
     .supports = SupportsCublasLtFp8,
     .run = RunByCublasLtInFp8,
     .workspace_bytes = CublasLtFp8Bytes,
     .activations = ops::Precision::kF8,
     .varies_with_batch = true},
    kTensorCore,
    OfConverted<SupportsTensorCores<>, kConverted>(kTensorCore),
    {.op = "linear",
     .name = "tensor_core",
     .priority = 20,
     .supports = SupportsTensorCores</*kInTiles=*/true>,
     .run = RunOnTensorCores,
     .activations = ops::Precision::kBf16,
     .packing = &kAwqTiles},
    {.op = "linear",
     .name = "tensor_core_int8",
     .priority = 30,
     .supports = SupportsInt8,
     .run = RunInInt8,
     .workspace_bytes = Int8WorkspaceBytes,
     .activations = ops::Precision::kInt8Block},
#if !defined(__CUDACC__)
    kMatrixCore<32>,
    OfConverted<SupportsMatrixCores<32>, kConverted>(kMatrixCore<32>),
    kMatrixCore<64>,
    OfConverted<SupportsMatrixCores<64>, kConverted>(kMatrixCore<64>),
    {.op = "linear",
     .name = "matrix_core_f8",
     .priority = 30,
     .supports = SupportsF8MatrixCores<32>,
     .run = RunInF8OnMatrixCores<32>,
     .workspace_bytes = F8MatrixCoreBytes,
     .activations = ops::Precision::kF8},
    {.op = "linear",
     .name = "matrix_core_f8",
     .priority = 30,
     .supports = SupportsF8MatrixCores<64>,
     .run = RunInF8OnMatrixCores<64>,
     .workspace_bytes = F8MatrixCoreBytes,
     .activations = ops::Precision::kF8},
#endif
    kGpu,
    OfConverted<Supports, kConverted>(kGpu),
};

}  // namespace

std::span<const ops::Kernel> LinearKernels() { return kKernels; }

}  // namespace pagemill::gpu
