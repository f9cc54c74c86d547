// What every kernel of `stream_weights` has to pass (rowwise_conformance.h): one to many streams,
// one to many iterations, with and without those of results.
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {

void CheckStreamWeightsConformance(const OpDefinition& op, const device::Capabilities& caps) {
  constexpr int64_t kTokens = 7;
  for (int64_t streams : {1, 2, 4, 7}) {
    for (int64_t iterations : {0, 1, 2, 20}) {  // 0: one output
      const bool both = iterations > 0;
      const int64_t width = both ? streams * (streams + 2) : streams;
      conformance::RowCase c{.op = op};
      c.AddRows({kTokens, width});
      c.AddShared({width});
      c.AddShared({both ? 3 : 1});
      c.AddOutput({kTokens, streams});
      if (both) c.AddOutput({kTokens, streams, streams + 1});
      c.attributes.Set("iterations", static_cast<double>(both ? iterations : 1));
      c.attributes.Set("eps", 1e-3);
      c.act_inputs = 0;
      // The contract's bound; weights are at most 2.
      c.tolerance = {.abs = 1e-7, .rel = 4e-7 * static_cast<double>(8 + 4 * iterations)};
      CheckRowCase(c, caps);
    }
  }
}

}  // namespace pagemill::ops
