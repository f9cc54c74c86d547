// File: cc/program/op_profile.h
// Where a step's time goes, by kind of op and by layer: what an executor records while it is asked
// to, and what it tells of it.
//
//   profile.Start(program, selection);
//   profile.Add(StepKind::kDecode, op_index, call, {.seconds = 1e-4, .waited_s = 2e-5});
//   for (const OpTime& time : profile.Times(StepKind::kDecode)) ...
//
// Ops of one name, kernel and matrix of weights are one kind. The ops of a layer are those after
// the one that writes `layer.<i - 1>`, up to the one that writes `layer.<i>`
// (docs/program_format.md); a rewrite that joins the end of one layer with the begin of the next
// leaves both to the first. Thread safety: none; that of the executor.
#ifndef PAGEMILL_CC_PROGRAM_OP_PROFILE_H_
#define PAGEMILL_CC_PROGRAM_OP_PROFILE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cc/ops/batch_view.h"
#include "cc/ops/op.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/program.h"

namespace pagemill::program {

enum class StepKind : uint8_t {
  kDecode,  // one token of each request
  kPrompt,  // more than one of some request
};
inline constexpr size_t kNumStepKinds = 2;

inline StepKind KindOf(const ops::StepArrays& batch) {
  return batch.num_tokens > batch.num_requests ? StepKind::kPrompt : StepKind::kDecode;
}

// Time spent in one kind of op since profiling began.
struct OpTime {
  std::string op;
  std::string matrix;  // its matrices, "q4_1[960,576]", and stacks of them; empty if it has none
  std::string kernel;
  int64_t calls = 0;
  double seconds = 0;
  // Of all threads together, what none of them spent in the op's work: workers before their part
  // and after it, the caller while workers were not done.
  double waited_s = 0;
  // Of all operands, once each: weights, activations; not the KV cache, nor a table of embeddings
  // from which rows are taken. Of a stack one matrix for each choice of the call, all at most: an
  // upper bound.
  double bytes = 0;
  double operations = 0;  // with the matrix; a multiplication and an addition are two
};

// Time spent in one layer since profiling began.
struct LayerTime {
  std::string layer;  // "layer.0", to which what comes before belongs; "end" for what comes last
  double seconds = 0;
};

// Of one call.
struct CallTime {
  double seconds = 0;
  double waited_s = 0;
};

class OpProfile {
 public:
  // Forgets what was recorded before and is ready for Add().
  void Start(const Program& program, const KernelSelection& kernels);

  // Op `index` of the program took so long; `call` has the step's sizes.
  void Add(StepKind kind, size_t index, const ops::OpCall& call, const CallTime& time);

  // Kinds that ran, slowest first.
  std::vector<OpTime> Times(StepKind kind) const;
  // Layers in their order; empty if nothing ran.
  std::vector<LayerTime> Layers(StepKind kind) const;

 private:
  struct Entry {
    OpTime time;                            // what it is; without figures
    std::array<OpTime, kNumStepKinds> sum;  // figures only
    std::vector<bool> counts;               // of the inputs, then the outputs: do its bytes count?
    double operations_per_row = 0;
    int8_t choices = -1;  // MatrixInputs::choices
    size_t layer = 0;     // index in layers_
  };
  std::vector<std::string> layers_;
  std::vector<Entry> entries_;  // one an op
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_OP_PROFILE_H_
