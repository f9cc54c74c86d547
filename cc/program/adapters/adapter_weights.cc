#include "cc/program/adapters/adapter_weights.h"

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

StatusOr<std::shared_ptr<const AdapterWeights>> AdapterWeights::Make(
    const Program& program, std::span<const Layer> layers) {
  const std::vector<ValueId> ids = AdapterValues(program);
  std::unordered_map<std::string_view, size_t> indices;
  for (size_t i = 0; i < ids.size(); ++i) indices.emplace(program.value(ids[i]).name, i);
  std::shared_ptr<AdapterWeights> made(new AdapterWeights());
  made->layers_.resize(ids.size());
  for (const Layer& layer : layers) {
    const auto found = indices.find(layer.name);
    if (found == indices.end()) {
      return InvalidArgument("the program has no adapter for '" + layer.name + "'");
    }
    const Shape& shape = program.value(ids[found->second]).shape;
    ops::PackedAdapter& target = made->layers_[found->second];
    if (!target.matrices().empty()) {
      return InvalidArgument("'" + layer.name + "' occurs twice");
    }
    StatusOr<ops::PackedAdapter> packed =
        ops::PackedAdapter::Make(layer.tensors, shape.dims[0], shape.dims[1]);
    if (!packed.ok()) {
      return Status(packed.status().code(), "'" + layer.name + "': " + packed.status().message());
    }
    target = std::move(*packed);
  }
  return std::shared_ptr<const AdapterWeights>(std::move(made));
}

int64_t AdapterWeights::bytes() const {
  int64_t bytes = 0;
  for (const ops::PackedAdapter& layer : layers_) bytes += layer.bytes();
  return bytes;
}

}  // namespace pagemill::program
