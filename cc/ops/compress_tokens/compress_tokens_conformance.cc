// What every kernel of `compress_tokens` has to pass (state_conformance.h), for odd sizes, one and
// two parts, windows shorter and longer than the blocks between two states.
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/states/state_conformance.h"

namespace pagemill::ops {

void CheckCompressTokensConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int64_t parts : {1, 2}) {
    for (int64_t window : {1, 4, 16}) {
      for (int64_t channels : {1, 7, 75, 130}) {
        conformance::StateCase c{.op = op};
        c.AddRows(parts * channels, -1, 1);                // x
        c.AddRows(parts * channels, -6, 6);                // gate
        c.AddShared({window, parts * channels}, -20, 20);  // bias: some tokens hardly count
        c.AddState({parts, 3, channels});
        c.output_width = channels;
        // The contract's bound for 2 windows of 16 tokens.
        c.tolerance = 3e-7 * (2 + 32);
        CheckStateCase(c, caps);
      }
    }
  }
}

}  // namespace pagemill::ops
