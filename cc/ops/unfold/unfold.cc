#include "cc/ops/unfold/unfold.h"

#include <cstdint>
#include <string>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/row_split.h"

namespace pagemill::ops {
namespace {

constexpr int64_t kMaxSize = 1 << 16;  // positions of a window: products stay far below 2^63

// Checks a call whose windows an index lists.
Status CheckListed(const OpCall& call) {
  OperandCheck check("unfold", call, /*inputs=*/2, /*outputs=*/1);
  check.ActInput(0, "x", "N,X*");
  check.Input(unfold::kIndex, "index", DType::kI32, "G,J,S");
  check.ActOutput(0, "y", "N,J,K*");
  if (!check.ok()) return check.Result();
  check.IntegerAttribute("channels", /*fallback=*/0, 1, INT32_MAX);
  check.Require(check.Dim('G') > 0 && check.Dim('S') > 0, "the index has no positions");
  if (!check.ok()) return check.Result();
  const int64_t channels = call.attributes->GetInt("channels", 0);
  check.Require(check.Dim('X') % channels == 0, "rows of " + std::to_string(check.Dim('X')) +
                                                    " have no positions of " +
                                                    std::to_string(channels) + " channels");
  check.Require(check.Dim('K') == channels * check.Dim('S'),
                "y must have windows of " + std::to_string(channels * check.Dim('S')) +
                    " elements, got " + std::to_string(check.Dim('K')));
  return check.Result();
}

Status CheckUnfold(const OpCall& call) {
  if (call.inputs.size() > unfold::kIndex) return CheckListed(call);
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

// Writes window `j` of row `n` to `y`.
template <typename T>
void CopyWindow(const unfold::Windows& windows, const TensorView& x, int64_t n, int64_t j, T* y) {
  for (int64_t k = 0; k < windows.size; ++k) {
    const auto place = unfold::PlaceOf(windows, x.shape[0], n, j, k);
    if (!place) {
      for (int64_t c = 0; c < windows.channels; ++c) y[c * windows.size + k] = 0;
    } else {
      const T* const from = x.Row<const T>(place->row) + place->position * windows.channels;
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
                                CopyWindow(windows, x, n, j, y.Row<T>(n) + j * windows.elements());
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
