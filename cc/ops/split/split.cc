#include "cc/ops/split/split.h"

#include <cstdint>
#include <cstring>
#include <string>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/row_split.h"

namespace pagemill::ops {
namespace {

int64_t LastDim(const TensorView& view) { return view.shape[view.rank - 1]; }

Status CheckSplit(const OpCall& call) {
  OperandCheck check("split", call, /*inputs=*/1, /*outputs=*/2);
  check.ActInput(0, "x", "N,X*");
  check.ActOutput(0, "a", "N,A*");
  check.ActOutput(1, "b", "N,B*");
  if (!check.ok()) return check.Result();
  const TensorView& x = call.inputs[0];
  check.Require(x.rank >= 2 && LastDim(x) >= 2, "x has no last dimension to cut");
  if (!check.ok()) return check.Result();
  check.IntegerAttribute("at", /*fallback=*/0, 1, LastDim(x) - 1);
  if (!check.ok()) return check.Result();
  const int64_t at = call.attributes->GetInt("at", 0);
  const int64_t pieces = x.RowElements() / LastDim(x);
  const int64_t sizes[] = {pieces * at, pieces * (LastDim(x) - at)};
  for (size_t i = 0; i < 2; ++i) {
    const int64_t elements = call.outputs[i].RowElements();
    check.Require(elements == sizes[i], "part " + std::to_string(i) + " must have " +
                                            std::to_string(sizes[i]) + " elements a row, got " +
                                            std::to_string(elements));
  }
  return check.Result();
}

constexpr Kernel kKernels[] = {
    {"split", "portable", 10, InEveryType, split::RunPortable},
    {"split", "reference", 0, InEveryType, split::RunReference},
};

constexpr OpDefinition kDefinition{"split", CheckSplit, kKernels};

}  // namespace

const OpDefinition& SplitOp() { return kDefinition; }

namespace split {

void RunPortable(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const int64_t width = LastDim(x), pieces = x.RowElements() / width;
  const int64_t bytes = RowBytes(x.dtype, 1);
  context.pool->ParallelFor(
      x.shape[0], RowsPerChunk(x.RowElements()), [&](int64_t begin, int64_t end, int) {
        int64_t column = 0;
        for (const TensorView& y : call.outputs) {
          const int64_t part = y.RowElements() / pieces;
          for (int64_t n = begin; n < end; ++n) {
            for (int64_t i = 0; i < pieces; ++i) {
              std::memcpy(y.Row<std::byte>(n) + i * part * bytes,
                          x.Row<const std::byte>(n) + (i * width + column) * bytes,
                          static_cast<size_t>(part * bytes));
            }
          }
          column += part;
        }
      });
}

}  // namespace split

}  // namespace pagemill::ops
