#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/argmax/largest.h"
#include "cuda/ops/argmax/row_columns.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kPartColumns = 4096;  // of a row, for a block: one alone has many

uint32_t NumParts(int64_t columns) { return DivideUp(columns, kPartColumns); }

// Block (row, part); `best` is [rows, parts]. {-inf, -1}: none; {+inf, -1}: some element is NaN or
// +inf.
PAGEMILL_KERNEL LargestOfPart(Rows<const float> x, int64_t size, Found* best) {
  LetNextBegin();
  AwaitInputs();
  const int64_t row = BlockIndex().x, part = BlockIndex().y;
  const int64_t begin = part * kPartColumns;
  const int64_t end = begin + kPartColumns < size ? begin + kPartColumns : size;
  Found found = {-INFINITY, -1};
  ForColumns(x[row], begin + ThreadIndex().x, end, kThreads, [&](int64_t column, float value) {
    if (!(value < INFINITY)) found = {INFINITY, -1};
    if (value > found.value) found = {value, static_cast<int32_t>(column)};
  });
  found = BestOfBlock<kThreads>(found);
  if (ThreadIndex().x == 0) best[row * GridSize().y + part] = found;
}

// Block (row).
PAGEMILL_KERNEL LargestOfParts(const Found* best, int parts, int32_t* columns, float* values) {
  LetNextBegin();
  AwaitInputs();
  const int64_t row = BlockIndex().x;
  Found found = {-INFINITY, -1};
  for (int part = static_cast<int>(ThreadIndex().x); part < parts; part += kThreads) {
    found = Better(found, best[row * parts + part]);
  }
  found = BestOfBlock<kThreads>(found);
  if (ThreadIndex().x != 0) return;
  columns[row] = found.column;
  values[row] = found.value;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const auto rows = static_cast<uint32_t>(x.shape[0]);
  const uint32_t parts = NumParts(x.shape[1]);
  auto* const best = reinterpret_cast<Found*>(context.workspace.data());
  Launch(*context.stream, {.blocks = {rows, parts}, .threads = {kThreads}, .early = true},
         LargestOfPart, RowsOf<const float>(x), x.shape[1], best);
  Launch(*context.stream, {.blocks = {rows}, .threads = {kThreads}, .early = true}, LargestOfParts,
         best, static_cast<int>(parts), call.outputs[0].Data<int32_t>(),
         call.outputs[1].Data<float>());
}

int64_t WorkspaceBytes(const ops::OpCall& call, int32_t) {
  const TensorView& x = call.inputs[0];
  return x.shape[0] * NumParts(x.shape[1]) * static_cast<int64_t>(sizeof(Found));
}

constexpr ops::Kernel kKernels[] = {{.op = "argmax",
                                     .name = "gpu",
                                     .priority = 10,
                                     .supports = OnEveryGpu,
                                     .run = Run,
                                     .workspace_bytes = WorkspaceBytes}};

}  // namespace

std::span<const ops::Kernel> ArgmaxKernels() { return kKernels; }

}  // namespace pagemill::gpu
