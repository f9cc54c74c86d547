#include "cc/program/adapters/adapter_weights.h"

#include <string>
#include <unordered_map>
#include <utility>

namespace pagemill::program {

std::vector<ValueId> AdapterValues(const Program& program) {
  std::vector<ValueId> ids;
  for (size_t i = 0; i < program.values().size(); ++i) {
    if (program.values()[i].kind != ValueKind::kAdapter) continue;
    ids.push_back(ValueId(static_cast<int32_t>(i)));
  }
  return ids;
}

int64_t NumMatrices(const Value& adapter) {
  return adapter.shape.rank == 3 ? adapter.shape.dims[0] : 1;
}

StatusOr<std::shared_ptr<const AdapterWeights>> AdapterWeights::Make(
    const Program& program, std::span<const Layer> layers) {
  const std::vector<ValueId> ids = AdapterValues(program);
  struct Place {
    const Value* value;
    size_t first;  // of matrices_
  };
  std::unordered_map<std::string_view, Place> places;
  size_t count = 0;
  for (ValueId id : ids) {
    const Value& value = program.value(id);
    places.emplace(value.name, Place{&value, count});
    count += static_cast<size_t>(NumMatrices(value));
  }
  std::shared_ptr<AdapterWeights> made(new AdapterWeights());
  made->matrices_.resize(count);
  for (const Layer& layer : layers) {
    const auto found = places.find(layer.name);
    if (found == places.end()) {
      return InvalidArgument("the program has no adapter for '" + layer.name + "'");
    }
    const auto [value, first] = found->second;
    if (layer.expert < 0 || layer.expert >= NumMatrices(*value)) {
      return InvalidArgument("'" + layer.name + "' has no expert " + std::to_string(layer.expert));
    }
    ops::PackedAdapter& target = made->matrices_[first + static_cast<size_t>(layer.expert)];
    if (!target.matrices().empty()) {
      return InvalidArgument("'" + layer.name + "' occurs twice");
    }
    const auto columns = static_cast<size_t>(value->shape.rank - 1);
    StatusOr<ops::PackedAdapter> packed = ops::PackedAdapter::Make(
        layer.tensors, value->shape.dims[columns - 1], value->shape.dims[columns]);
    if (!packed.ok()) {
      return Status(packed.status().code(), "'" + layer.name + "': " + packed.status().message());
    }
    target = std::move(*packed);
  }
  return std::shared_ptr<const AdapterWeights>(std::move(made));
}

int64_t AdapterWeights::bytes() const {
  int64_t bytes = 0;
  for (const ops::PackedAdapter& matrices : matrices_) bytes += matrices.bytes();
  return bytes;
}

}  // namespace pagemill::program
