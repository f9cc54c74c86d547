#include "cc/ops/gemm_benchmark.h"

#include <algorithm>

#include "cc/device/capabilities.h"

namespace pagemill::ops {
namespace {

int64_t ScaleRows(const MatrixShape& s, const GemmBenchmarkOptions& o) {
  return o.scale_block == 0 ? s.m : (s.m + o.scale_block - 1) / o.scale_block;
}

int64_t ScaleColumns(const MatrixShape& s, const GemmBenchmarkOptions& o) {
  return o.scale_block == 0 ? 1 : (s.k + o.scale_block - 1) / o.scale_block;
}

conformance::TestTensor Weights(const MatrixShape& s, const GemmBenchmarkOptions& o) {
  if (o.dtype == DType::kU4) return {DType::kI32, {s.m, s.k / 8}};
  return {o.dtype, {s.m, s.k}};
}

conformance::TestTensor Scales(const MatrixShape& s, const GemmBenchmarkOptions& o) {
  if (o.dtype == DType::kU4) return {DType::kF8E4M3, {s.m, s.k / 16}};
  return {DType::kF32, {ScaleRows(s, o), ScaleColumns(s, o)}};
}

}  // namespace

GemmBenchmarkCase::GemmBenchmarkCase(const OpDefinition& op, const MatrixShape& shape,
                                     const GemmBenchmarkOptions& options)
    : x_(DType::kF32, {options.n, shape.k}),
      w_(Weights(shape, options)),
      scales_(Scales(shape, options)),
      factor_(DType::kF32, {1}),
      y_(DType::kF32, {options.n, shape.m}) {
  conformance::Random random(1);
  FillX(random);
  const bool is_scaled = options.dtype == DType::kI8 || options.dtype == DType::kF8E4M3;
  const bool is_nvfp4 = options.dtype == DType::kU4;
  const float largest = is_nvfp4 ? 2e9f : is_scaled ? 100 : 1;
  w_.FillUniform(random, -largest, largest);
  if (is_nvfp4) {
    scales_.FillUniform(random, 1, 448);
  } else {
    scales_.FillUniform(random, 0.001f, 0.01f);
  }
  inputs_ = {x_.view(), w_.view()};
  if (is_scaled) {
    parts_ = {.format = {.block_rows = std::max<int64_t>(1, options.scale_block),
                         .block_columns = options.scale_block == 0 ? shape.k : options.scale_block},
              .values = w_.view(),
              .scales = scales_.view(),
              .zeros = {},
              .groups = {}};
    inputs_[1].parts = &parts_;
  }
  if (is_nvfp4) {
    factor_.FillUniform(random, 1e-4f, 2e-4f);
    parts_ = {.format = {.layout = QuantizedLayout::kNvfp4, .block_columns = 16},
              .values = w_.view(),
              .scales = scales_.view(),
              .zeros = {},
              .groups = {},
              .factor = factor_.view()};
    inputs_[1] = TensorView::Dense(w_.view().data, options.dtype, {shape.m, shape.k});
    inputs_[1].parts = &parts_;
  }
  outputs_[0] = y_.view();
  const OpCall call = {inputs_, outputs_, &attributes_, nullptr};
  const auto row = ChooseKernel(op, device::DetectCapabilities(), call, {.name = options.kernel});
  if (row.ok()) call_.emplace(**row, call, options.threads);
}

void GemmBenchmarkCase::FillX(conformance::Random& random) {
  std::vector<float> x(x_.view().Elements());
  for (size_t begin = 0; begin < x.size(); begin += 32) {
    const float largest = random.Int(0, 7) == 0 ? 4 : 1;
    const size_t end = std::min(begin + 32, x.size());
    for (size_t i = begin; i < end; ++i) x[i] = random.Uniform(-largest, largest);
  }
  x_.Set(x);
}

std::span<const uint8_t> GemmBenchmarkCase::weights() const {
  const TensorView& w = w_.view();
  return {w.Data<const uint8_t>(), static_cast<size_t>(w.shape[0] * w.row_stride_bytes)};
}

double GemmBenchmarkCase::operations() const {
  return 2.0 * static_cast<double>(x_.view().Elements()) * static_cast<double>(w_.view().shape[0]);
}

SmolLM2Gemms::SmolLM2Gemms(const OpDefinition& op, const GemmBenchmarkOptions& options,
                           DType vocabulary) {
  const MatrixShape layer[] = {{576, 576},  {576, 192},  {576, 192}, {576, 576},
                               {576, 1536}, {576, 1536}, {1536, 576}};
  for (int i = 0; i < 30; ++i) {
    for (const MatrixShape& shape : layer) {
      gemms_.push_back(std::make_unique<GemmBenchmarkCase>(op, shape, options));
    }
  }
  GemmBenchmarkOptions projection = options;
  projection.dtype = vocabulary;
  projection.n = options.n <= 32 ? options.n : 1;
  gemms_.push_back(std::make_unique<GemmBenchmarkCase>(op, MatrixShape{576, 49152}, projection));
}

bool SmolLM2Gemms::runnable() const {
  return std::ranges::all_of(gemms_, [](const auto& gemm) { return gemm->runnable(); });
}

void SmolLM2Gemms::Run(device::ThreadPool& pool) {
  for (const auto& gemm : gemms_) gemm->Run(pool);
}

double SmolLM2Gemms::weight_bytes() const {
  double bytes = 0;
  for (const auto& gemm : gemms_) bytes += static_cast<double>(gemm->weights().size());
  return bytes;
}

double SmolLM2Gemms::operations() const {
  double operations = 0;
  for (const auto& gemm : gemms_) operations += gemm->operations();
  return operations;
}

}  // namespace pagemill::ops
