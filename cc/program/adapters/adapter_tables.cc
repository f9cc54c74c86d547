#include "cc/program/adapters/adapter_tables.h"

#include <algorithm>
#include <string>
#include <utility>

namespace pagemill::program {

AdapterTables::AdapterTables(const Program& program, int32_t num_slots)
    : ids_(AdapterValues(program)), held_(static_cast<size_t>(num_slots)) {
  for (ValueId id : ids_) {
    Table& table = tables_.emplace_back();
    table.num_matrices = static_cast<size_t>(NumMatrices(program.value(id)));
    table.matrices.resize(held_.size() * table.num_matrices);
  }
}

ops::AdapterMatrices* AdapterTables::TableOf(ValueId adapter) {
  const auto found = std::find(ids_.begin(), ids_.end(), adapter);
  return tables_[static_cast<size_t>(found - ids_.begin())].matrices.data();
}

Status AdapterTables::Set(int32_t slot, std::shared_ptr<const AdapterWeights> weights) {
  if (slot < 0 || static_cast<size_t>(slot) >= held_.size()) {
    return InvalidArgument("adapter slot " + std::to_string(slot) + " is not one of " +
                           std::to_string(held_.size()));
  }
  size_t count = 0;
  for (const Table& table : tables_) count += table.num_matrices;
  if (weights != nullptr && weights->matrices().size() != count) {
    return InvalidArgument("the adapter was made for another program");
  }
  size_t next = 0;  // of the adapter's matrices
  for (Table& table : tables_) {
    ops::AdapterMatrices* entry =
        table.matrices.data() + static_cast<size_t>(slot) * table.num_matrices;
    for (size_t i = 0; i < table.num_matrices; ++i, ++next) {
      entry[i] = weights == nullptr ? ops::AdapterMatrices{} : weights->matrices()[next].matrices();
    }
  }
  held_[static_cast<size_t>(slot)] = std::move(weights);
  return OkStatus();
}

}  // namespace pagemill::program
