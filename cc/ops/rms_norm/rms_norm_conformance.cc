// What every kernel of `rms_norm` has to pass: closeness to the reference within the contract's
// bound for odd sizes, and the checks of rowwise_conformance.h.
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {

void CheckRmsNormConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int64_t size : {1, 3, 4, 15, 16, 17, 31, 63, 64, 65, 130, 576, 1000}) {
    for (float offset : {0.0f, 1.0f}) {
      conformance::RowCase c{.op = op};
      c.AddRows({5, size});
      c.AddShared({size});
      c.AddOutput({5, size});
      c.attributes.Set("eps", 1e-5);
      c.attributes.Set("weight_offset", offset);
      // The contract's relative bound, and an absolute one, since w + offset near 0 loses digits.
      c.tolerance = {.abs = 1e-6, .rel = 2e-6};
      CheckRowCase(c, caps);
    }
  }
  // Heads of a token are rows of their own.
  conformance::RowCase heads{.op = op};
  heads.AddRows({37, 3, 80});
  heads.AddShared({80});
  heads.AddOutput({37, 3, 80});
  heads.attributes.Set("eps", 1e-6);
  heads.tolerance = {.abs = 1e-6, .rel = 2e-6};
  CheckRowCase(heads, caps);
  conformance::RowCase groups{.op = op};
  groups.AddRows({19, 3, 33});
  groups.AddShared({3 * 33});
  groups.AddOutput({19, 3, 33});
  groups.attributes.Set("eps", 1e-6);
  groups.tolerance = {.abs = 1e-6, .rel = 2e-6};
  CheckRowCase(groups, caps);
  // All heads together are one row, and heads of the result.
  conformance::RowCase whole{.op = op};
  whole.AddRows({19, 99});
  whole.AddShared({99});
  whole.AddOutput({19, 3, 33});
  whole.attributes.Set("eps", 1e-6);
  whole.tolerance = {.abs = 1e-6, .rel = 2e-6};
  CheckRowCase(whole, caps);
}

}  // namespace pagemill::ops
