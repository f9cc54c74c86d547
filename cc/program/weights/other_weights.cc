#include "cc/program/weights/other_weights.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

namespace pagemill::program {
namespace {

// "bf16[96,576]"
std::string TypeOf(const Value& v) {
  return std::string(Info(v.dtype).name) + "[" + v.shape.ToString() + "]";
}

// Where the bytes of a weight lie does not matter, except for the distance between its rows.
Value WithoutLocation(Value v) {
  v.weight.file = 0;
  v.weight.offset = 0;
  return v;
}

std::map<std::string_view, const Value*> WeightsByName(const Program& program) {
  std::map<std::string_view, const Value*> weights;
  for (const Value& v : program.values()) {
    if (v.kind == ValueKind::kWeight) weights.emplace(v.name, &v);
  }
  return weights;
}

Status CheckWeights(const Program& loaded, const Program& other) {
  const auto have = WeightsByName(loaded), given = WeightsByName(other);
  for (const auto& [name, weight] : have) {
    const auto found = given.find(name);
    if (found == given.end()) return InvalidArgument("'" + weight->name + "' is missing");
    if (TypeOf(*found->second) == TypeOf(*weight)) continue;
    return InvalidArgument("'" + weight->name + "' is " + TypeOf(*found->second) + ", but " +
                           TypeOf(*weight) + " is loaded");
  }
  for (const auto& [name, weight] : given) {
    if (!have.contains(name)) {
      return InvalidArgument("'" + weight->name + "' is not of the loaded model");
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckOtherWeights(const Program& loaded, const Program& other) {
  PAGEMILL_RETURN_IF_ERROR(CheckWeights(loaded, other));
  for (size_t i = 0; i < std::min(loaded.values().size(), other.values().size()); ++i) {
    const Value& have = loaded.values()[i];
    if (WithoutLocation(have) == WithoutLocation(other.values()[i])) continue;
    return InvalidArgument("'" + have.name +
                           "' is not the loaded one: its layout or its place differs");
  }
  for (size_t i = 0; i < std::min(loaded.ops().size(), other.ops().size()); ++i) {
    if (loaded.ops()[i] == other.ops()[i]) continue;
    return InvalidArgument("op " + std::to_string(i) + " is " + other.ops()[i].name +
                           ", which differs from the loaded " + loaded.ops()[i].name);
  }
  if (loaded.values().size() != other.values().size() ||
      loaded.ops().size() != other.ops().size() || loaded.groups() != other.groups() ||
      loaded.outputs() != other.outputs()) {
    return InvalidArgument("the program is another one than the loaded one");
  }
  return OkStatus();
}

}  // namespace pagemill::program
