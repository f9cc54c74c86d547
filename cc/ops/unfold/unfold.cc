#include "cc/ops/unfold/unfold.h"

#include <cstdint>
#include <string>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/row_split.h"

namespace pagemill::ops {
namespace {

constexpr int64_t kMaxSize = 1 << 16;  // positions of a window: products stay far below 2^63

Status CheckUnfold(const OpCall& call) {
  OperandCheck check("unfold", call, /*inputs=*/1, /*outputs=*/1);
  check.ActInput(0, "x", "N,P,C");
  check.ActOutput(0, "y", "N,J,K");
  check.IntegerAttribute("size", /*fallback=*/0, 1, kMaxSize);
  check.IntegerAttribute("stride", /*fallback=*/1, 1, kMaxSize);
  if (!check.ok()) return check.Result();
  const int64_t size = call.attributes->GetInt("size", 0);
  check.IntegerAttribute("padding", /*fallback=*/0, 0, size - 1);
  if (!check.ok()) return check.Result();
  const unfold::Windows windows = unfold::WindowsOf(call);
  const int64_t steps = check.Dim('P') + 2 * windows.padding - size;
  check.Require(steps >= 0, "x has no window of " + std::to_string(size) + " positions");
  const int64_t count = steps / windows.stride + 1;
  check.Require(windows.count == count && check.Dim('K') == windows.elements(),
                "y must have " + std::to_string(count) + " windows of " +
                    std::to_string(windows.elements()) + " elements, got " +
                    std::to_string(windows.count) + " of " + std::to_string(check.Dim('K')));
  return check.Result();
}

// Writes window `j` of the row `x` to `y`.
template <typename T>
void CopyWindow(const unfold::Windows& windows, int64_t j, const T* x, T* y) {
  for (int64_t k = 0; k < windows.size; ++k) {
    const int64_t position = j * windows.stride + k - windows.padding;
    if (position < 0 || position >= windows.positions) {
      for (int64_t c = 0; c < windows.channels; ++c) y[c * windows.size + k] = 0;
    } else {
      const T* const from = x + position * windows.channels;
      for (int64_t c = 0; c < windows.channels; ++c) y[c * windows.size + k] = from[c];
    }
  }
}

// T has the size of an element: zeros have no bits in any type.
template <typename T>
void CopyWindows(const OpCall& call, KernelContext& context) {
  const unfold::Windows windows = unfold::WindowsOf(call);
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  context.pool->ParallelFor(x.shape[0] * windows.count, RowsPerChunk(windows.elements()),
                            [&](int64_t begin, int64_t end, int) {
                              for (int64_t i = begin; i < end; ++i) {
                                const int64_t n = i / windows.count, j = i % windows.count;
                                CopyWindow(windows, j, x.Row<const T>(n),
                                           y.Row<T>(n) + j * windows.elements());
                              }
                            });
}

constexpr Kernel kKernels[] = {
    {"unfold", "portable", 10, InEveryType, unfold::RunPortable},
    {"unfold", "reference", 0, InEveryType, unfold::RunReference},
};

constexpr OpDefinition kDefinition{"unfold", CheckUnfold, kKernels};

}  // namespace

const OpDefinition& UnfoldOp() { return kDefinition; }

namespace unfold {

void RunPortable(const OpCall& call, KernelContext& context) {
  if (call.inputs[0].dtype == DType::kF32) {
    CopyWindows<uint32_t>(call, context);
  } else {
    CopyWindows<uint16_t>(call, context);
  }
}

}  // namespace unfold

}  // namespace pagemill::ops
