// What every kernel of `merge_attention` has to pass (rowwise_conformance.h), for odd sizes, one
// and two sets, of which some are empty.
#include <cmath>
#include <vector>

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {

void CheckMergeAttentionConformance(const OpDefinition& op, const device::Capabilities& caps) {
  constexpr int64_t kTokens = 6;
  for (int64_t heads : {1, 3, 8}) {
    for (int64_t size : {1, 7, 64, 133}) {
      for (int64_t sets : {1, 2}) {
        conformance::RowCase c{.op = op};
        c.AddShared({heads});  // sinks
        for (int64_t s = 0; s < sets; ++s) {
          c.AddRows({kTokens, heads, size});
          c.AddRows({kTokens, heads});
          std::vector<float> sums = c.inputs.back().ToFloat();
          for (size_t i = static_cast<size_t>(s); i < sums.size(); i += 3) sums[i] = -INFINITY;
          c.inputs.back().Set(sums);
        }
        c.act_inputs = 0b1010 & ((1u << (1 + 2 * sets)) - 1);  // sums and sinks are f32
        c.AddOutput({kTokens, heads * size});
        c.tolerance = {.abs = 1e-6 * 2};  // the contract's bound with |x| <= 2
        CheckRowCase(c, caps);
      }
    }
  }
}

}  // namespace pagemill::ops
