#include "cc/comm/topology.h"

#include <string>

namespace pagemill::comm {

Status Topology::Validate() const {
  const bool in_range = data >= 1 && data <= kMaxRanks && pipeline >= 1 && pipeline <= kMaxRanks &&
                        tensor >= 1 && tensor <= kMaxRanks && num_ranks() <= kMaxRanks;
  if (in_range) return OkStatus();
  return InvalidArgument("a topology of " + std::to_string(data) + " data x " +
                         std::to_string(pipeline) + " pipeline x " + std::to_string(tensor) +
                         " tensor ranks must have from 1 to " + std::to_string(kMaxRanks) +
                         " ranks");
}

int32_t Topology::Size(Axis axis) const {
  switch (axis) {
    case Axis::kTensor:
      return tensor;
    case Axis::kPipeline:
      return pipeline;
    case Axis::kData:
      return data;
    case Axis::kExpert:
      return data * tensor;
  }
  return 1;
}

std::vector<int32_t> Topology::Members(Axis axis, int32_t rank) const {
  // A rank's coordinate along each dimension, and the dimensions along which members of the axis
  // differ.
  const auto stage = [this](int32_t r) { return r / tensor % pipeline; };
  const auto replica = [this](int32_t r) { return r / (tensor * pipeline); };
  const auto part = [this](int32_t r) { return r % tensor; };
  const bool any_replica = axis == Axis::kData || axis == Axis::kExpert;
  const bool any_stage = axis == Axis::kPipeline;
  const bool any_part = axis == Axis::kTensor || axis == Axis::kExpert;
  std::vector<int32_t> members;
  for (int32_t r = 0; r < num_ranks(); ++r) {
    if ((any_replica || replica(r) == replica(rank)) && (any_stage || stage(r) == stage(rank)) &&
        (any_part || part(r) == part(rank))) {
      members.push_back(r);
    }
  }
  return members;
}

}  // namespace pagemill::comm
