// File: cc/program/greedy_tail.h
// The end of a program for steps that need only the largest logit of each row: the projection to
// the vocabulary computes these maxima instead of writing logits, and ranks of a group gather
// maxima instead of logits.
//
//   std::optional<GreedyTail> tail = GreedyTail::Find(program, target.ops, max_num_logits_rows);
//   const bool greedy = tail && tail->Serves(batch, adapters);
//   for each op: greedy && tail->Replaces(i) ? tail->Run(i, kernel, call, context) :
//   kernel.run(...); output->maxima = tail->maxima(batch.num_logits_rows);
//
// Whether a step uses it depends only on program, batch and on which slots have an adapter of the
// projection, which are the same on all ranks. Thread safety: one step at a time. Run() allocates
// nothing.
#ifndef PAGEMILL_CC_PROGRAM_GREEDY_TAIL_H_
#define PAGEMILL_CC_PROGRAM_GREEDY_TAIL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cc/ops/batch_view.h"
#include "cc/ops/op.h"
#include "cc/ops/row_maxima.h"
#include "cc/program/adapters/adapter_tables.h"
#include "cc/program/program.h"

namespace pagemill::program {

class GreedyTail {
 public:
  // Empty if an op reads the logits, or if they are not the product with one matrix, optionally
  // with adapters and gathered from ranks.
  static std::optional<GreedyTail> Find(const Program& program,
                                        std::span<const ops::OpDefinition> ops, int64_t max_rows);

  // True if `batch` requests only maxima, of no more columns than exist, and none of its rows has
  // an adapter that changes the projection.
  bool Serves(const ops::StepArrays& batch, AdapterTables& adapters) const;
  // True if Run() runs this op in steps that Serves() accepts.
  bool Replaces(size_t op) const { return op == projection_ || op == adapt_ || op == gather_; }
  // `kernel` and `call` are those of op `op`.
  void Run(size_t op, const ops::Kernel& kernel, const ops::OpCall& call,
           ops::KernelContext& context);
  // The maxima of the last step, once its last op has run.
  std::span<const ops::RowMaximum> maxima(int32_t rows) const {
    return std::span(maxima_).first(static_cast<size_t>(rows));
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  void RunProjection(const ops::Kernel& kernel, const ops::OpCall& call,
                     ops::KernelContext& context);
  void RunGather(const ops::OpCall& call, ops::KernelContext& context);

  size_t projection_ = kNone;
  size_t adapt_ = kNone;                   // kNone unless the projection may have adapters
  ValueId adapter_ = kNoValue;             // of `adapt_`
  size_t gather_ = kNone;                  // kNone unless ranks divide the vocabulary
  int64_t columns_ = 0;                    // of the logits
  int64_t first_column_ = 0;               // of this rank
  std::vector<int64_t> widths_;            // bytes that each rank contributes
  std::vector<ops::RowMaximum> maxima_;    // [max_rows]
  std::vector<ops::RowMaximum> gathered_;  // [max_rows, ranks]
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_GREEDY_TAIL_H_
