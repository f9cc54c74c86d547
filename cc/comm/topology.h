// File: cc/comm/topology.h
// Assigns ranks, numbered from 0, to groups along each axis.
//
//   const Topology topology = {.data = 2, .tensor = 4};   // 8 ranks
//   topology.Members(Axis::kTensor, 5);                   // 4, 5, 6, 7
//   topology.Members(Axis::kData, 5);                     // 1, 5
//
// Ranks are numbered row-major over (data, pipeline, tensor): ranks that exchange most have
// neighbouring numbers, and so neighbouring cores. Experts are divided among all ranks of a
// pipeline stage (data times tensor), so the expert axis has no size of its own (as in vLLM:
// vllm/distributed/parallel_state.py).
//
// Thread safety: a value.
#ifndef PAGEMILL_CC_COMM_TOPOLOGY_H_
#define PAGEMILL_CC_COMM_TOPOLOGY_H_

#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/comm/group.h"

namespace pagemill::comm {

struct Topology {
  int32_t data = 1;      // groups of ranks that run different requests
  int32_t pipeline = 1;  // stages: ranges of layers
  int32_t tensor = 1;    // ranks that divide each layer

  // kInvalidArgument names the sizes and their range: each from 1, together up to kMaxRanks.
  Status Validate() const;

  int32_t num_ranks() const { return data * pipeline * tensor; }
  // The number of ranks of a group along `axis`.
  int32_t Size(Axis axis) const;
  // The members of `rank`'s group along `axis`, itself included, in ascending order.
  std::vector<int32_t> Members(Axis axis, int32_t rank) const;
};

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_TOPOLOGY_H_
