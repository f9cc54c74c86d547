#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/linear/converted_weights.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {
namespace {

// A block for each id. `outside`: the row of ids that are none of the table's `num_rows`; -1: there
// are no such ids.
template <typename T, typename W>
PAGEMILL_KERNEL GatherRow(const int32_t* ids, W w, int64_t num_rows, int64_t outside, Rows<T> y,
                          int64_t size, float scale) {
  const int64_t id = ids[BlockIndex().x];
  const bool known = outside < 0 || (id >= 0 && id < num_rows);
  const typename W::Row row = w.At(/*matrix=*/0, known ? id : outside);
  T* const to = y[BlockIndex().x];
  const int64_t step = static_cast<int64_t>(BlockSize().x) * kWeightsAtOnce;
  for (int64_t i = ThreadIndex().x * kWeightsAtOnce; i < size; i += step) {
    const int64_t left = size - i;
    const int count = left < kWeightsAtOnce ? static_cast<int>(left) : kWeightsAtOnce;
    float values[kWeightsAtOnce];
    row.Load(i, count, values);
    PAGEMILL_UNROLL
    for (int j = 0; j < kWeightsAtOnce; ++j) {
      if (j < count) to[i + j] = FromFloat<T>(values[j] * row.Factor() * scale);
    }
  }
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& ids = call.inputs[0];
  const TensorView& w = call.inputs[1];
  const TensorView& y = call.outputs[0];
  const auto scale = static_cast<float>(call.attributes->Get("scale", 1));
  const LaunchShape shape = {.blocks = {static_cast<uint32_t>(ids.shape[0])},
                             .threads = {BlockThreads(w.shape[1], kWeightsAtOnce, 256)}};
  WithActType(y.dtype, [&]<typename T>(T) {
    WithWeights(w, [&]<typename W>(const W& table) {
      Launch(*context.stream, shape, GatherRow<T, W>, ids.Data<const int32_t>(), table, w.shape[0],
             call.attributes->GetInt("outside", -1), RowsOf<T>(y), w.shape[1], scale);
    });
  });
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && AreReadable(call.inputs[1]);
}

constexpr ops::WeightPacking kConverted = ConvertedWeights(/*inputs=*/0b10);
constexpr ops::Kernel kGpu = {"embedding", "gpu", 10, Supports, Run};
constexpr ops::Kernel kKernels[] = {kGpu, OfConverted<Supports, kConverted>(kGpu)};

}  // namespace

std::span<const ops::Kernel> EmbeddingKernels() { return kKernels; }

}  // namespace pagemill::gpu
