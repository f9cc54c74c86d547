#include "cc/ops/pool/pool.h"

#include "cuda/gpu_launch.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

using ops::PoolKind;

constexpr int kColumns = 32;  // of a block
constexpr int kParts = 16;    // of a request's tokens, which threads of a block add up
constexpr int64_t kElementsPerThread = 4;

// y[r] = the mean of the tokens of request r.
template <typename T, typename Y>
PAGEMILL_KERNEL Average(Rows<const T> x, const int32_t* query_start, Rows<Y> y, int64_t size) {
  PAGEMILL_SHARED(double[kParts * kColumns], sums);
  const int64_t row = BlockIndex().x;
  const int in_block = static_cast<int>(ThreadIndex().x % kColumns);
  const int part = static_cast<int>(ThreadIndex().x / kColumns);
  const int64_t column = int64_t{BlockIndex().y} * kColumns + in_block;
  const int32_t begin = query_start[row], end = query_start[row + 1];
  double sum = 0;
  for (int32_t t = begin + part; t < end && column < size; t += kParts) {
    sum += ToFloat(x[t][column]);
  }
  sums[part * kColumns + in_block] = sum;
  SyncBlock();
  if (part > 0 || column >= size) return;
  for (int i = 1; i < kParts; ++i) sum += sums[i * kColumns + in_block];
  y[row][column] = FromFloat<Y>(begin == end ? 0 : static_cast<float>(sum / (end - begin)));
}

// y[r] = a row of x, if `normalize` divided by its norm: of kind kAll row r, else that of a token
// of request r.
template <typename X, typename Y>
PAGEMILL_KERNEL PickRow(Rows<const X> x, const int32_t* query_start, Rows<Y> y, int64_t size,
                        PoolKind kind, bool normalize) {
  const int64_t row = BlockIndex().x;
  int64_t from = row;
  bool empty = false;
  if (kind != PoolKind::kAll) {
    const int32_t begin = query_start[row], end = query_start[row + 1];
    from = kind == PoolKind::kFirst ? begin : end - 1;
    empty = begin == end;
  }
  const auto at = [&](int64_t i) { return empty ? 0 : ToFloat(x[from][i]); };
  float norm = 1;
  if (normalize) {
    float squares = 0;
    for (int64_t i = ThreadIndex().x; i < size; i += BlockSize().x) squares += at(i) * at(i);
    norm = fmaxf(sqrtf(BlockSum(squares)), 1e-12f);
  }
  for (int64_t i = ThreadIndex().x; i < size; i += BlockSize().x) {
    y[row][i] = FromFloat<Y>(at(i) / norm);
  }
}

bool NeedsMeans(const ops::PoolArgs& args) {
  return args.kind == PoolKind::kMean && args.normalize;
}

template <typename T, typename Y>
void Pool(const ops::PoolArgs& args, ops::KernelContext& context) {
  const int64_t size = args.x.RowElements();
  const uint32_t rows = static_cast<uint32_t>(args.y.shape[0]);
  const Rows<const T> x = RowsOf<const T>(args.x);
  const Rows<Y> y = RowsOf<Y>(args.y);
  const int32_t* const start = args.batch->query_start;
  const LaunchShape average = {.blocks = {rows, DivideUp(size, kColumns)},
                               .threads = {kColumns * kParts}};
  const LaunchShape pick = {.blocks = {rows}, .threads = {BlockThreads(size, kElementsPerThread)}};
  if (NeedsMeans(args)) {
    const Rows<float> means = {reinterpret_cast<float*>(context.workspace.data()), size};
    Launch(*context.stream, average, Average<T, float>, x, start, means, size);
    Launch(*context.stream, pick, PickRow<float, Y>, Rows<const float>{means.data, size}, start, y,
           size, PoolKind::kAll, true);
  } else if (args.kind == PoolKind::kMean) {
    Launch(*context.stream, average, Average<T, Y>, x, start, y, size);
  } else {
    Launch(*context.stream, pick, PickRow<T, Y>, x, start, y, size, args.kind, args.normalize);
  }
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::PoolArgs args = ops::ToPoolArgs(call);
  WithActType(args.x.dtype, [&]<typename T>(T) {
    args.y.dtype == DType::kF32 ? Pool<T, float>(args, context) : Pool<T, T>(args, context);
  });
}

// Not the largest logits of sparse vectors.
bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && ops::ToPoolArgs(call).kind <= PoolKind::kAll;
}

int64_t WorkspaceBytes(const ops::OpCall& call, int32_t) {
  const ops::PoolArgs args = ops::ToPoolArgs(call);
  return NeedsMeans(args) ? args.y.shape[0] * RowBytes(DType::kF32, args.x.RowElements()) : 0;
}

constexpr ops::Kernel kKernels[] = {{"pool", "gpu", 10, Supports, Run, WorkspaceBytes}};

}  // namespace

std::span<const ops::Kernel> PoolKernels() { return kKernels; }

}  // namespace pagemill::gpu
