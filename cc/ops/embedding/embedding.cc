#include "cc/ops/embedding/embedding.h"

#include "cc/ops/kernel_support.h"
#include "cc/ops/linear/packed_bf16.h"
#include "cc/ops/linear/packed_blocks.h"
#include "cc/ops/linear/packed_gemm.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/quantized/packed_integers.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

// Rows that one thread takes at a time: a few microseconds of dequantization.
constexpr int64_t kGrainRows = 16;

Status CheckEmbedding(const OpCall& call) {
  OperandCheck check("embedding", call, /*inputs=*/2, /*outputs=*/1);
  if (!check.ok()) return check.Result();
  const DType dtype = call.inputs[1].dtype;
  if (const Status fits = CheckWeight(call.inputs[1]); !fits.ok()) {
    check.Require(false, fits.message());
  }
  check.Require(!IsScaled(call.inputs[1]), "W must not have scales");
  check.Input(0, "ids", DType::kI32, "N");
  check.Input(1, "W", dtype, "V,H");
  check.ActOutput(0, "y", "N,H*");
  check.IntegerAttribute("outside", /*fallback=*/-1, -1, check.Dim('V') - 1);
  return check.Result();
}

bool OfBlocks(const device::Capabilities&, const OpCall& call) {
  const TensorView& w = call.inputs[1];
  return w.parts == nullptr && IsBlockFormat(BlockDTypeOf(w)) && HasF32Activations(call);
}

bool OfBf16(const device::Capabilities&, const OpCall& call) {
  const TensorView& w = call.inputs[1];
  return w.parts == nullptr && BlockDTypeOf(w) == DType::kBF16 && HasF32Activations(call);
}

bool OnStored(const device::Capabilities&, const OpCall& call) {
  return HasF32Activations(call) && call.inputs[1].parts == nullptr;
}

bool OnPackedIntegers(const device::Capabilities&, const OpCall& call) {
  return HasF32Activations(call) && HasPackedIntegers(call.inputs[1]);
}

constexpr WeightPacking kBlockRows = BlockRows(/*inputs=*/0b10);

// A table that is also the vocabulary projection is read from the slices that `linear` packs.
constexpr WeightPacking Following(WeightPacking packing) {
  packing.follows = true;
  return packing;
}

// Only the slice layout: nothing is multiplied here.
constexpr linear::PackedGemm kPackedBlocksGemm = {
    0, linear::BlockSliceBytes, linear::PackBlockSlice, nullptr, nullptr, nullptr};
constexpr linear::PackedGemm kPackedBf16Gemm = {
    0, linear::Bf16SliceBytes, linear::PackBf16Slice, nullptr, nullptr, nullptr};
constexpr WeightPacking kPackedBlocks =
    Following(linear::PackingOfGemm<&kPackedBlocksGemm>(linear::kPackedBlocksLayout));
constexpr WeightPacking kPackedBf16 =
    Following(linear::PackingOfGemm<&kPackedBf16Gemm>(linear::kPackedBf16Layout));

// y[n] = scale * row ids[n]; `read(id, out)` decodes a row.
template <class Read>
void Gather(const OpCall& call, KernelContext& context, const Read& read) {
  const TensorView& ids = call.inputs[0];
  const TensorView& y = call.outputs[0];
  const int64_t elements = call.inputs[1].shape[1];
  const float scale = static_cast<float>(call.attributes->Get("scale", 1.0));
  context.pool->ParallelFor(ids.shape[0], kGrainRows, [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n) {
      float* row = y.Row<float>(n);
      read(embedding::RowOf(call, ids.Data<const int32_t>()[n]), row);
      if (scale == 1.0f) continue;
      for (int64_t i = 0; i < elements; ++i) row[i] *= scale;
    }
  });
}

template <const linear::PackedGemm* kSet, auto kReadRow>
void RunSlices(const OpCall& call, KernelContext& context) {
  const TensorView& w = call.inputs[1];
  if (w.row_stride_bytes != 0) return embedding::RunPortable(call, context);  // as stored
  const int64_t slice_bytes = kSet->slice_bytes(w.dtype, w.shape[1]);
  Gather(call, context, [&](int32_t id, float* out) {
    kReadRow(w.dtype, w.Data<const uint8_t>() + id / linear::kSliceRows * slice_bytes,
             id % linear::kSliceRows, w.shape[1], out);
  });
}

constexpr F32Kernel kReference{.act_inputs = 0, .run = embedding::RunReference};

constexpr Kernel kKernels[] = {
    {.op = "embedding",
     .name = "packed_blocks",
     .priority = 20,
     .supports = OfBlocks,
     .run = RunSlices<&kPackedBlocksGemm, linear::ReadPackedBlockRow>,
     .packing = &kPackedBlocks},
    {.op = "embedding",
     .name = "packed_bf16",
     .priority = 20,
     .supports = OfBf16,
     .run = RunSlices<&kPackedBf16Gemm, linear::ReadPackedBf16Row>,
     .packing = &kPackedBf16},
    {"embedding", "portable", 10, OnStored, embedding::RunPortable},
    {.op = "embedding",
     .name = "portable",
     .priority = 10,
     .supports = OnPackedIntegers,
     .run = embedding::RunPortable,
     .packing = &kBlockRows},
    WidenedReference<&kReference>("embedding"),
};

constexpr OpDefinition kDefinition{.op = "embedding",
                                   .check = CheckEmbedding,
                                   .kernels = kKernels,
                                   .traits = {.table = {.ids = 0, .table = 1}}};

}  // namespace

const OpDefinition& EmbeddingOp() { return kDefinition; }

namespace embedding {

int32_t RowOf(const OpCall& call, int32_t id) {
  const int64_t outside = call.attributes->GetInt("outside", -1);
  const bool known = outside < 0 || (id >= 0 && id < call.inputs[1].shape[0]);
  return known ? id : static_cast<int32_t>(outside);
}

void RunPortable(const OpCall& call, KernelContext& context) {
  const TensorView& w = call.inputs[1];
  Gather(call, context, [&](int32_t id, float* out) {
    ReadWeightRow(w, /*matrix=*/0, id, out);
  });
}

}  // namespace embedding

}  // namespace pagemill::ops
