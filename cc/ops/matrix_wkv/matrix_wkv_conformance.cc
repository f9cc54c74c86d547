// What every kernel of `matrix_wkv` has to pass (state_conformance.h), for odd sizes.
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/states/state_conformance.h"

namespace pagemill::ops {
namespace {

enum class Version { kRwkv5, kRwkv6, kRwkv7 };

struct Sizes {
  int64_t heads, keys, values;
};
constexpr Sizes kSizes[] = {{1, 3, 1},   {3, 5, 7},   {2, 16, 64},  {2, 33, 19},
                            {1, 64, 64}, {1, 65, 40}, {1, 132, 20}, {1, 256, 9}};

conformance::StateCase CaseOf(const OpDefinition& op, Version version, const Sizes& s) {
  const bool removes = version == Version::kRwkv7;
  const int64_t keys = s.heads * s.keys, values = s.heads * s.values;
  conformance::StateCase c{.op = op};
  c.AddRows(keys, -1, 1);  // receptance
  // Decay: of RWKV-5 and RWKV-6 from states of many tokens to ones of the last.
  if (version == Version::kRwkv5) {
    c.AddShared({keys}, -6, 2);
  } else {
    c.AddRows(keys, -6, removes ? 6 : 2);
  }
  c.AddRows(keys, -1, 1);      // key
  c.AddRows(values, -1, 1);    // value
  c.AddShared({keys}, -1, 1);  // bonus
  if (removes) {
    c.AddRows(keys, -4, 4);      // rate
    c.AddShared({keys}, -1, 2);  // removal
    c.AddShared({keys}, 0, 1);   // boost
  } else {
    for (int i = 0; i < 3; ++i) c.AddMissing();
  }
  c.AddState({s.heads, s.keys, s.values});
  c.output_width = values;
  c.num_outputs = removes ? 2 : 1;
  // The contract's bound for 132 keys and a state of 70 tokens is 1e-3 of the sum of all
  // magnitudes; signs cancel in errors as they do in results, of which the largest is compared.
  c.tolerance = 1e-5;
  return c;
}

}  // namespace

void CheckMatrixWkvConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (const Version version : {Version::kRwkv5, Version::kRwkv6, Version::kRwkv7}) {
    for (const Sizes& sizes : kSizes) {
      conformance::StateCase c = CaseOf(op, version, sizes);
      CheckStateCase(c, caps);
    }
  }
}

}  // namespace pagemill::ops
