#include "cc/program/adapters/adapter_tables.h"

#include <algorithm>
#include <string>
#include <utility>

namespace pagemill::program {

AdapterTables::AdapterTables(const Program& program, int32_t num_slots)
    : ids_(AdapterValues(program)),
      tables_(ids_.size(), std::vector<ops::AdapterMatrices>(static_cast<size_t>(num_slots))),
      held_(static_cast<size_t>(num_slots)) {}

ops::AdapterMatrices* AdapterTables::Table(ValueId adapter) {
  const auto found = std::find(ids_.begin(), ids_.end(), adapter);
  return tables_[static_cast<size_t>(found - ids_.begin())].data();
}

Status AdapterTables::Set(int32_t slot, std::shared_ptr<const AdapterWeights> weights) {
  if (slot < 0 || static_cast<size_t>(slot) >= held_.size()) {
    return InvalidArgument("adapter slot " + std::to_string(slot) + " is not one of " +
                           std::to_string(held_.size()));
  }
  if (weights != nullptr && weights->layers().size() != tables_.size()) {
    return InvalidArgument("the adapter was made for another program");
  }
  for (size_t i = 0; i < tables_.size(); ++i) {
    tables_[i][static_cast<size_t>(slot)] =
        weights == nullptr ? ops::AdapterMatrices{} : weights->layers()[i].matrices();
  }
  held_[static_cast<size_t>(slot)] = std::move(weights);
  return OkStatus();
}

}  // namespace pagemill::program
