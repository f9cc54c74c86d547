// What every kernel of `scale` has to pass (rowwise_conformance.h), for odd sizes.
#include <cstdint>
#include <vector>

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {

void CheckScaleConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int64_t size : {1, 3, 4, 5, 16, 63, 576}) {
    conformance::RowCase c{.op = op};
    c.AddRows({33, size});
    c.AddOutput({33, size});
    c.attributes.Set("by", -0.22);
    c.tolerance = {};  // exact
    CheckRowCase(c, caps);
    conformance::RowCase columns{.op = op};
    columns.AddRows({33, size});
    columns.AddShared({size});
    columns.AddOutput({33, size});
    columns.attributes.Set("by", 0.3);
    columns.tolerance = {};  // exact
    CheckRowCase(columns, caps);
    conformance::RowCase groups{.op = op};
    groups.AddRows({33, 3, size});
    groups.AddShared({33, 3});
    groups.input_has_rows.back() = true;
    groups.AddOutput({33, 3, size});
    groups.attributes.Set("by", 0.3);
    groups.tolerance = {};  // exact
    CheckRowCase(groups, caps);
    std::vector<int32_t> positions;
    for (int32_t i = 0; i < 33; ++i) positions.push_back(i * i);
    c.inputs.emplace_back(DType::kI32, std::initializer_list<int64_t>{33});
    c.inputs.back().SetInt(positions);
    c.input_has_rows.push_back(true);
    c.attributes.Set("growth", 0.1);
    c.attributes.Set("context", 100);
    CheckRowCase(c, caps);
  }
}

}  // namespace pagemill::ops
