#include "cc/ops/concat/concat.h"

#include <cstdint>
#include <cstring>
#include <string>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/row_split.h"

namespace pagemill::ops {
namespace {

Status CheckConcat(const OpCall& call) {
  const size_t count = call.inputs.size();
  if (count < 2 || count > kMaxConcatInputs) {
    return InvalidArgument("concat: expected 2 to " + std::to_string(kMaxConcatInputs) +
                           " inputs, got " + std::to_string(count));
  }
  OperandCheck check("concat", call, static_cast<int>(count), /*outputs=*/1);
  int64_t width = 0;
  for (size_t i = 0; i < count; ++i) {
    const char symbol = static_cast<char>('A' + i);
    check.ActInput(i, "x" + std::to_string(i), std::string("N,") + symbol + "*");
    width += check.Dim(symbol);
  }
  check.ActOutput(0, "y", "N,Y*");
  check.Require(check.Dim('Y') == width, "y must have rows of " + std::to_string(width) +
                                             " elements, got " + std::to_string(check.Dim('Y')));
  return check.Result();
}

constexpr Kernel kKernels[] = {
    {"concat", "portable", 10, InEveryType, concat::RunPortable},
    {"concat", "reference", 0, InEveryType, concat::RunReference},
};

constexpr OpDefinition kDefinition{"concat", CheckConcat, kKernels};

}  // namespace

const OpDefinition& ConcatOp() { return kDefinition; }

namespace concat {

void RunPortable(const OpCall& call, KernelContext& context) {
  const TensorView& y = call.outputs[0];
  context.pool->ParallelFor(
      y.shape[0], RowsPerChunk(y.RowElements()), [&](int64_t begin, int64_t end, int) {
        for (int64_t n = begin; n < end; ++n) {
          std::byte* to = y.Row<std::byte>(n);
          for (const TensorView& x : call.inputs) {
            const int64_t bytes = RowBytes(x.dtype, x.RowElements());
            std::memcpy(to, x.Row<const std::byte>(n), static_cast<size_t>(bytes));
            to += bytes;
          }
        }
      });
}

}  // namespace concat

}  // namespace pagemill::ops
