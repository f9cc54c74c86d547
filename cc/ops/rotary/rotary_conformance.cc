#include "cc/ops/rotary/rotary_conformance.h"

#include <cmath>

#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {
namespace {

struct Shape {
  int64_t q_heads, k_heads, head_dim, pairs;
};

void CheckShape(const OpDefinition& op, const device::Capabilities& caps, const Shape& shape,
                bool interleaved) {
  constexpr int64_t kTokens = 9;
  conformance::RowCase c{.op = op};
  c.AddRows({kTokens, shape.q_heads, shape.head_dim});
  c.AddRows({kTokens, shape.k_heads, shape.head_dim});
  c.inputs.emplace_back(DType::kI32, std::initializer_list<int64_t>{kTokens});
  c.input_has_rows.push_back(true);
  const int32_t positions[kTokens] = {0, 1, 2, 77, 4095, 65537, 100003, 131071, 131072};
  c.inputs.back().SetInt(positions);
  std::vector<float> inv_freq;
  for (int64_t i = 0; i < shape.pairs; ++i) {
    const double exponent = static_cast<double>(i) / static_cast<double>(shape.pairs);
    inv_freq.push_back(static_cast<float>(std::pow(10000.0, -exponent)));
  }
  c.AddShared({shape.pairs}).Set(inv_freq);
  c.AddOutput({kTokens, shape.q_heads, shape.head_dim});
  c.AddOutput({kTokens, shape.k_heads, shape.head_dim});
  c.attributes.Set("interleaved", interleaved ? 1 : 0);
  c.attributes.Set("mscale", 1.25);
  c.tolerance = {.abs = 4e-7 * (2 + 2) * 1.25};  // the contract's bound at |x| <= 2
  CheckRowCase(c, caps);
}

}  // namespace

void CheckRotaryConformance(const OpDefinition& op, const device::Capabilities& caps) {
  const Shape shapes[] = {{9, 3, 64, 32}, {4, 1, 256, 128}, {2, 2, 80, 16}, {3, 1, 10, 5},
                          {1, 1, 2, 1},   {2, 1, 72, 36},   {1, 2, 96, 20}, {1, 1, 16, 7}};
  for (const Shape& shape : shapes) {
    CheckShape(op, caps, shape, /*interleaved=*/false);
    CheckShape(op, caps, shape, /*interleaved=*/true);
  }
}

}  // namespace pagemill::ops
