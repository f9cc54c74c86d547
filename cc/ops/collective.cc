#include "cc/ops/collective.h"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace pagemill::ops {
namespace {

comm::Axis AxisOf(const Attributes& attributes) {
  return static_cast<comm::Axis>(attributes.GetInt("axis", 0));
}

}  // namespace

void CheckGroupAttributes(OperandCheck& check, const Attributes& attributes) {
  check.IntegerAttribute("axis", 0, 0, static_cast<int64_t>(comm::kAxes.size()) - 1);
  check.IntegerAttribute("ranks", 0, 1, comm::kMaxRanks);
  if (check.ok()) check.IntegerAttribute("rank", 0, 0, attributes.GetInt("ranks", 1) - 1);
}

comm::Group* GroupOf(const Attributes& attributes, const KernelContext& context) {
  return context.groups == nullptr ? nullptr : context.groups->at(AxisOf(attributes));
}

Status CheckGroups(const Attributes& attributes, const comm::Groups& groups) {
  if (attributes.Get("ranks", 0) == 0) return OkStatus();
  const comm::Axis axis = AxisOf(attributes);
  const comm::Group* group = groups.at(axis);
  const int32_t ranks = group == nullptr ? 1 : group->num_ranks();
  const int32_t rank = group == nullptr ? 0 : group->rank();
  const int64_t wanted_ranks = attributes.GetInt("ranks", ranks);
  const int64_t wanted_rank = attributes.GetInt("rank", rank);
  if (wanted_ranks == ranks && wanted_rank == rank) return OkStatus();
  return InvalidArgument("is for " +
                         (wanted_ranks == ranks ? "rank " + std::to_string(wanted_rank)
                                                : std::to_string(wanted_ranks) + " ranks") +
                         " along axis " + std::to_string(static_cast<int>(axis)) +
                         ", this executor is rank " + std::to_string(rank) + " of " +
                         std::to_string(ranks));
}

device::Ranks RanksOf(comm::Group& group) {
  return {.rank = group.rank(),
          .num_ranks = group.num_ranks(),
          .exchange = [&group](std::span<const std::byte> own, std::span<std::byte> all) {
            const std::vector<int64_t> bytes(static_cast<size_t>(group.num_ranks()),
                                             static_cast<int64_t>(own.size()));
            return group.AllGather(own.data(), all.data(), /*rows=*/1, bytes);
          }};
}

}  // namespace pagemill::ops
