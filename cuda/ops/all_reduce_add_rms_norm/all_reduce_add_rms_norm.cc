// The sum over ranks and the norm behind it:
//
//   one_shot     each rank sends its rows to all; then a block adds the ranks' rows and the
//                residual's, and normalizes the sum, which it still has in registers
//   two_shot     the two ops one after the other
//   peer_memory  one_shot for little data; else the two ops, with the faster way of all_reduce
//
// Without access to each other's memory, in a group of one, or if rows are not vectors of 16 bytes,
// all are the two ops.
#include "cuda/ops/all_reduce_add_rms_norm/all_reduce_add_rms_norm.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "cc/ops/all_reduce_add_rms_norm/all_reduce_add_rms_norm.h"
#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_exchange.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/all_reduce/rank_sum.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/rms_norm/rms_norm_row.h"

namespace pagemill::gpu {
namespace {

constexpr int kMostThreads = 1024;  // of NormShape()
template <typename T>
constexpr int kWide = 16 / static_cast<int>(sizeof(T));

// Rows [first, first + count) of `size` elements, a block for every GridSize() of them. The norm is
// that of the stored sum.
template <typename T>
PAGEMILL_KERNEL_OF(kMostThreads, 1)
SumAddRmsNorm(Rows<const T> x, Rows<const T> residual, const float* w, Rows<T> y, Rows<T> sum,
              Rows<T> reduced, int64_t first, int64_t count, int64_t size, float eps,
              float offset, PeerMemory peers) {
  constexpr int kSize = kWide<T>;
  using Elements = Vector<T, kSize>;
  AwaitInputs();
  Exchange exchange(peers);
  const auto part = static_cast<int32_t>(count * size);  // of an inbox
  const auto step = static_cast<int32_t>(BlockSize().x * kSize);
  const auto blocks = static_cast<int32_t>(GridSize().x);
  for (auto n = static_cast<int32_t>(BlockIndex().x); n < count; n += blocks) {
    for (int32_t i = static_cast<int32_t>(ThreadIndex().x * kSize); i < size; i += step) {
      const Elements own = *reinterpret_cast<const Elements*>(x[first + n] + i);
      for (int r = 0; r < peers.num_ranks; ++r) {
        T* const to = exchange.Outbox<T>(r) + peers.rank * part + n * size + i;
        *reinterpret_cast<Elements*>(to) = own;
      }
    }
  }
  exchange.Meet();
  LetNextBegin();  // not before: ranks of tests share a GPU, and may need the room of its blocks
  for (auto n = static_cast<int32_t>(BlockIndex().x); n < count; n += blocks) {
    const T* const inbox = exchange.Inbox<T>() + n * size;
    const T* const of_residual = residual[first + n];
    T* const of_sum = sum[first + n];
    T* const of_ranks = reduced[first + n];
    const auto add = [&](int32_t i) {
      Elements both =
          SumOf(reinterpret_cast<const Elements*>(inbox + i), part / kSize, peers.num_ranks);
      *reinterpret_cast<Elements*>(of_ranks + i) = both;
      const Elements b = *reinterpret_cast<const Elements*>(of_residual + i);
      PAGEMILL_UNROLL
      for (int j = 0; j < kSize; ++j) {
        both.values[j] = FromFloat<T>(ToFloat(both.values[j]) + ToFloat(b.values[j]));
      }
      *reinterpret_cast<Elements*>(of_sum + i) = both;
      return both;
    };
    const auto read = [&](int32_t i) { return *reinterpret_cast<const Elements*>(of_sum + i); };
    NormalizeRow<T, kSize>(add, read, w, y[first + n], size, eps, offset);
  }
  exchange.Finish();
}

void RunTwoOps(const ops::OpCall& call, ops::KernelContext& context, std::string_view sum) {
  const ops::AllReduceThenNorm parts(call);
  const auto kernels = AllReduceKernels();
  std::ranges::find(kernels, sum, &ops::Kernel::name)->run(parts.all_reduce(), context);
  AddRmsNormKernels()[0].run(parts.add_rms_norm(), context);
}

void RunTwoShot(const ops::OpCall& call, ops::KernelContext& context) {
  RunTwoOps(call, context, "two_shot");
}

// The rows that a launch takes of a call whose rows and weights are vectors of 16 bytes; 0 if the
// call cannot be fused.
int64_t MostRows(const ops::OpCall& call, const PeerGroup* peers) {
  if (peers == nullptr || peers->nccl() != nullptr) return 0;
  const TensorView& x = call.inputs[0];
  const int64_t row_bytes = RowBytes(x.dtype, x.RowElements());
  const bool is_wide = row_bytes % 16 == 0 && HasAlignedRows(x) && HasAlignedRows(call.inputs[1]) &&
                       AreAlignedWeights(call.inputs[2]) &&
                       std::ranges::all_of(call.outputs, HasAlignedRows);
  return is_wide ? peers->memory().inbox_bytes / (peers->memory().num_ranks * row_bytes) : 0;
}

void RunOneShot(const ops::OpCall& call, ops::KernelContext& context) {
  GpuStream& stream = static_cast<GpuStream&>(*context.stream);
  const int64_t most = MostRows(call, stream.peers());
  if (most == 0) return RunTwoOps(call, context, "one_shot");
  const TensorView& x = call.inputs[0];
  const int64_t rows = x.shape[0], size = x.shape[1];
  const auto eps = static_cast<float>(call.attributes->Get("eps", 0));
  const auto offset = static_cast<float>(call.attributes->Get("weight_offset", 0));
  WithActType(x.dtype, [&]<typename T>(T) {
    for (int64_t first = 0; first < rows; first += most) {
      const int64_t count = std::min(most, rows - first);
      LaunchShape shape = NormShape<kWide<T>>(x, size);
      shape.blocks = {static_cast<uint32_t>(std::min<int64_t>(count, kExchangeBlocks))};
      Launch(stream, shape, SumAddRmsNorm<T>, RowsOf<const T>(x),
             RowsOf<const T>(call.inputs[1]), call.inputs[2].Data<const float>(),
             RowsOf<T>(call.outputs[0]), RowsOf<T>(call.outputs[1]), RowsOf<T>(call.outputs[2]),
             first, count, size, eps, offset, stream.peers()->memory());
    }
  });
}

// An exchange has few blocks: much data is normalized faster by a kernel of its own.
void RunFaster(const ops::OpCall& call, ops::KernelContext& context) {
  if (IsLittle(call.inputs[0])) return RunOneShot(call, context);
  RunTwoOps(call, context, "peer_memory");
}

constexpr ops::Kernel kKernels[] = {
    {"all_reduce_add_rms_norm", "peer_memory", 10, AmongPeers, RunFaster},
    {"all_reduce_add_rms_norm", "one_shot", 5, AmongPeers, RunOneShot},
    {"all_reduce_add_rms_norm", "two_shot", 4, AmongPeers, RunTwoShot}};

}  // namespace

std::span<const ops::Kernel> AllReduceAddRmsNormKernels() { return kKernels; }

}  // namespace pagemill::gpu
