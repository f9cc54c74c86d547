// File: cuda/ops/linear/converted_weights.h
// GGUF's block formats that no kernel reads as stored (IsConvertedFormat), as they are uploaded:
// mxfp4 as words of values and bytes of scales, which checkpoints of safetensors have, 4.25 bits a
// weight; the others as the blocks that they become on CPUs (cc/ops/quantized/converted_blocks.h).
//
//   constexpr ops::WeightPacking kConverted = ConvertedWeights(ops::kWeightInputs);
//   constexpr ops::Kernel kStored = {.op = "linear", .name = "gpu", .supports = Supports, ...};
//   constexpr ops::Kernel kKernels[] = {kStored, OfConverted<Supports, kConverted>(kStored)};
#ifndef PAGEMILL_CUDA_OPS_LINEAR_CONVERTED_WEIGHTS_H_
#define PAGEMILL_CUDA_OPS_LINEAR_CONVERTED_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/capabilities.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/op.h"
#include "cc/tensor/dtype.h"
#include "cc/tensor/quantized.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::gpu {

// The functions of the packing.
int64_t ConvertedBytes(const TensorView& w);
Status PackConverted(const TensorView& w, std::byte* packed, device::ThreadPool& pool);
TensorView ConvertedView(const TensorView& w);

constexpr ops::WeightPacking ConvertedWeights(uint32_t inputs) {
  return {.layout = "converted blocks, version 1",
          .inputs = inputs,
          .bytes = ConvertedBytes,
          .pack = PackConverted,
          .view = ConvertedView};
}

// Kernel::supports: all weights have a format that is converted, and kSupports is true of what they
// become. kPacking is ConvertedWeights().
template <decltype(ops::Kernel::supports) kSupports, const ops::WeightPacking& kPacking>
bool SupportsConverted(const device::Capabilities& caps, const ops::OpCall& call) {
  std::vector<TensorView> inputs(call.inputs.begin(), call.inputs.end());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_weight = i < 32 && (kPacking.inputs >> i & 1) != 0 && inputs[i].rank > 0;
    if (!is_weight) continue;
    if (!IsConvertedFormat(inputs[i].dtype)) return false;
    inputs[i] = ConvertedView(inputs[i]);
  }
  ops::OpCall converted = call;
  converted.inputs = inputs;
  return kSupports(caps, converted);
}

// `stored`, whose `supports` is kSupports, for these formats.
template <decltype(ops::Kernel::supports) kSupports, const ops::WeightPacking& kPacking>
constexpr ops::Kernel OfConverted(ops::Kernel stored) {
  stored.supports = SupportsConverted<kSupports, kPacking>;
  stored.packing = &kPacking;
  return stored;
}

// True of a packed view of mxfp4: it has no row stride, as ops::WeightPacking has it.
inline bool ArePackedMxfp4(const TensorView& w) {
  return w.parts == nullptr && w.dtype == DType::kMxfp4 && w.row_stride_bytes == 0;
}

// Such a weight with the parts that it consists of. view() points into this object, which must not
// move.
class Mxfp4Parts {
 public:
  explicit Mxfp4Parts(const TensorView& packed);
  Mxfp4Parts(const Mxfp4Parts&) = delete;
  Mxfp4Parts& operator=(const Mxfp4Parts&) = delete;

  const TensorView& view() const { return view_; }

 private:
  QuantizedParts parts_;
  TensorView view_;
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_CONVERTED_WEIGHTS_H_
