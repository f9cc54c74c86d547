// File: cc/program/op_profile.h
// Time per kind of op and per layer, recorded by an executor while profiling is on.
//
//   profile.Start(program, selection);
//   profile.Add(StepKind::kDecode, op_index, call, {.seconds = 1e-4, .waited_s = 2e-5});
//   for (const OpTime& time : profile.Times(StepKind::kDecode)) ...
//
// Ops with the same name, kernel and weight matrix are one kind. The ops of a layer are those after
// the op that writes `layer.<i - 1>`, up to the one that writes `layer.<i>`
// (docs/program_format.md); an op into which a rewrite fused the end of one layer and the beginning
// of the next counts for the first. Thread safety: none; as the executor.
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
  std::string matrix;  // matrices and stacks, "q4_1[960,576]"; empty if none
  std::string kernel;
  int64_t calls = 0;
  double seconds = 0;
  // Summed over threads, time not spent in the op's work: workers before and after their part, the
  // caller while it waited for workers.
  double waited_s = 0;
  // Bytes of all operands, once each: weights and activations, without the KV cache and embedding
  // tables from which rows are gathered. For a stack, one matrix per choice of the call, at most
  // all: an upper bound.
  double bytes = 0;
  double operations = 0;  // with the matrix; a multiply-add is two
};

// Time spent in one layer since profiling began.
struct LayerTime {
  std::string layer;  // "layer.0" includes the ops before it; "end": the last ops
  double seconds = 0;
};

// Times of one call.
struct CallTime {
  double seconds = 0;
  double waited_s = 0;
};

class OpProfile {
 public:
  // Discards earlier records and prepares for Add().
  void Start(const Program& program, const KernelSelection& kernels);

  // Records the time of op `index` of the program; `call` has the step's sizes.
  void Add(StepKind kind, size_t index, const ops::OpCall& call, const CallTime& time);

  // What the op with this index is, without figures, and the layer that it belongs to.
  const OpTime& op(size_t index) const { return entries_[index].time; }
  const std::string& layer(size_t index) const { return layers_[entries_[index].layer]; }
  // Kinds of op that ran, slowest first.
  std::vector<OpTime> Times(StepKind kind) const;
  // Layers in their order; empty if nothing ran.
  std::vector<LayerTime> Layers(StepKind kind) const;

 private:
  struct Entry {
    OpTime time;                            // identity only, no figures
    std::array<OpTime, kNumStepKinds> sum;  // figures only
    std::vector<bool> counts;               // per input, then per output: true if its bytes count
    double operations_per_row = 0;
    int8_t choices = -1;  // MatrixInputs::choices
    size_t layer = 0;     // index in layers_
  };
  std::vector<std::string> layers_;
  std::vector<Entry> entries_;  // one per op
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_OP_PROFILE_H_
