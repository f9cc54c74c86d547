// File: cc/ops/states/state_conformance.h
// Conformance checks of ops with recurrent states (state_pages.h). Test code only.
//
//   StateCase c{.op = CausalConvOp()};
//   c.AddRows(17, -2, 2);                    // x: a row for each token
//   c.AddShared({17, 4}, -1, 1);             // w: the same for all
//   c.AddMissing();                          // no bias
//   c.AddState({3, 17});                     // the shape of a state
//   c.output_width = 17;
//   c.tolerance = 1e-6;
//   CheckStateCase(c, caps);
//
// Several sequences run as requests. For every kernel that supports the call:
// - outputs and states of whole sequences, each alone and in one step, with a state kept at every
//   boundary, are close to the reference's;
// - sequences that are divided anywhere and run among others, with states kept at random
//   boundaries, in pages that held NaN, with 1 to 3 threads and rows that are aligned or not, give
//   the same bits, outputs and states; also with pages for recent states, from which tokens that
//   were taken back are run again;
// - a step writes the pages of its states and nothing else: neither others' nor its source, unless
//   that is its target.
// The same is checked in bf16 and f16 (act_conformance.h); rows are activations, states f32.
//
// Kernels of bf16 whose bits vary with the batch compute divided sequences close to the reference.
#ifndef PAGEMILL_CC_OPS_STATES_STATE_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_STATES_STATE_CONFORMANCE_H_

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"

namespace pagemill::ops::conformance {

struct StateCase {
  enum class Role { kRows, kShared, kMissing, kState };
  struct Input {
    Role role;
    std::vector<int64_t> dims;  // of rows: their width; of the state: without the pages
    std::vector<float> values;  // of rows: of all tokens of all sequences
  };

  const OpDefinition& op;
  std::vector<Input> inputs = {};
  int64_t output_width = 0;
  int64_t num_outputs = 1;  // of this width each
  Attributes attributes = {};
  double tolerance = 0;  // relative to the largest |expected|
  Random random = Random(1);

  void AddRows(int64_t width, float low, float high);
  void AddShared(std::initializer_list<int64_t> dims, float low, float high);
  void AddMissing();
  void AddState(std::initializer_list<int64_t> dims);
};

void CheckStateCase(StateCase& c, const device::Capabilities& caps);

}  // namespace pagemill::ops::conformance

#endif  // PAGEMILL_CC_OPS_STATES_STATE_CONFORMANCE_H_
