// File: cc/program/operand_views.h
// Builds the TensorViews that ops receive: at the largest sizes, for checks and kernel selection,
// and as the views that the native executor keeps and resizes.
#ifndef PAGEMILL_CC_PROGRAM_OPERAND_VIEWS_H_
#define PAGEMILL_CC_PROGRAM_OPERAND_VIEWS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "cc/ops/op.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/program.h"
#include "cc/tensor/quantized.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::program {

// The view of `value`, which must not be a cache, over `data`, with dimension 0 taken from `sizes`.
TensorView MakeView(const Value& value, const StepSizes& sizes, void* data);

// Rows that `op` sees of each row of its activations: `linear` multiplies x [N, J, K] with W [M, K]
// as N * J rows of K elements, and writes as many of M, as it does with the J * H rows of x
// [N, J, H, K]; `attention` of q [tokens, J, H, D] sees tokens * J rows. 1 for other ops, and if
// x, q or W do not fit.
int64_t RowsOfEach(const Program& program, const Op& op);

// The view of `value` as an op sees it that has `rows_of_each` (RowsOfEach()).
TensorView MakeOperandView(const Value& value, const StepSizes& sizes, int64_t rows_of_each,
                           void* data);

// The parts of the quantized `weight`, over the data that `data` returns for each.
QuantizedParts MakeParts(const Program& program, const Value& weight,
                         const std::function<const std::byte*(ValueId part)>& data);

// "f32[2048,576]", "u4:awq[192,576]"; "-" for an omitted operand.
std::string ViewText(const TensorView& view);

// The block table of `op`'s cache; 0 for an op without a cache.
size_t TableOf(const Program& program, const Op& op, const KvLayout& layout);

// The operands of one op for a call that is checked but not run: every present operand points to
// the same few bytes, an omitted one is TensorView{} (rank 0, null).
//
//   OperandViews operands(program, op, sizes, layout);
//   Status status = definition.check(operands.call());
//
// Holds pointers into itself and into `op`: it does not move and must not outlive `op`.
class OperandViews {
 public:
  OperandViews(const Program& program, const Op& op, const StepSizes& sizes,
               const KvLayout& layout);
  OperandViews(const OperandViews&) = delete;
  OperandViews& operator=(const OperandViews&) = delete;

  const ops::OpCall& call() const { return call_; }
  // Replaces views of weights by the packed views of `kernel` (ops::PackedView).
  void Pack(const ops::Kernel& kernel);
  // "f32[2048,576] q4_1[960,576] - -> f32[2048,960]"
  std::string ToString() const;

 private:
  std::vector<TensorView> inputs_;
  std::vector<TensorView> outputs_;
  std::deque<QuantizedParts> parts_;  // of inputs
  ops::BatchView batch_;
  ops::OpCall call_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_OPERAND_VIEWS_H_
