#include "cc/ops/select_rows/select_rows.h"

#include <cstring>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {
namespace {

// Rows that one thread takes at a time: about 30 KB in a small model, 1 to 2 us.
constexpr int64_t kGrainRows = 16;
constexpr int64_t kMaxCount = 1024;

Status CheckSelectRows(const OpCall& call) {
  OperandCheck check("select_rows", call, /*inputs=*/2, /*outputs=*/1);
  check.ActInput(0, "x", "T,H*");
  check.Input(1, "rows", DType::kI32, "L");
  check.IntegerAttribute("count", /*fallback=*/1, 1, kMaxCount);
  if (!check.ok()) return check.Result();
  const int64_t count = call.attributes->GetInt("count", 1);
  check.ActOutput(0, "y", count == 1 ? "L,H*" : "L,Y*");
  check.Require(count == 1 || check.Dim('Y') == count * check.Dim('H'),
                "a row of y has " + std::to_string(check.Dim('Y')) + " elements, not " +
                    std::to_string(count) + " times " + std::to_string(check.Dim('H')));
  return check.Result();
}

constexpr Kernel kKernels[] = {
    {"select_rows", "portable", 10, InEveryType, select_rows::RunPortable},
    {"select_rows", "reference", 0, InEveryType, select_rows::RunReference},
};

constexpr OpDefinition kDefinition{"select_rows", CheckSelectRows, kKernels};

}  // namespace

const OpDefinition& SelectRowsOp() { return kDefinition; }

namespace select_rows {

void RunPortable(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& rows = call.inputs[1];
  const TensorView& y = call.outputs[0];
  const int64_t count = call.attributes->GetInt("count", 1);
  const size_t bytes = static_cast<size_t>(RowBytes(x.dtype, x.RowElements()));
  context.pool->ParallelFor(rows.shape[0], kGrainRows, [&](int64_t begin, int64_t end, int) {
    for (int64_t l = begin; l < end; ++l) {
      const int64_t first = rows.Data<const int32_t>()[l];
      for (int64_t i = 0; i < count; ++i) {
        uint8_t* const to = y.Row<uint8_t>(l) + static_cast<size_t>(i) * bytes;
        if (first + i < x.shape[0]) {
          std::memcpy(to, x.Row<const uint8_t>(first + i), bytes);
        } else {
          std::memset(to, 0, bytes);
        }
      }
    }
  });
}

}  // namespace select_rows

}  // namespace pagemill::ops
