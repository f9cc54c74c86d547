// File: cc/device/numa.h
// Memory nodes: which there are, and where the memory of threads should lie. On a machine with one
// node, which most are, there is nothing to place.
//
//   const MemoryPlacement placement = PlacementFor(AllowedCpus(), NumaNodes());
//   Status placed = PlaceMemory(weights, placement);   // before they are touched
//
// Thread-safe; sizes of nodes, CPUs and lists are the system's.
#ifndef PAGEMILL_CC_DEVICE_NUMA_H_
#define PAGEMILL_CC_DEVICE_NUMA_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"

namespace pagemill::device {

struct NumaNode {
  int32_t id = 0;
  std::vector<int32_t> cpus;  // all, even if this process may not use them; empty: memory alone
  bool has_memory = false;    // which this process may use

  friend bool operator==(const NumaNode&, const NumaNode&) = default;
};

// Nodes that are online, by id; empty if the system does not tell. `sysfs_root` holds
// devices/system/node, `procfs_root` self/status, which names the nodes a cpuset allows.
std::vector<NumaNode> NumaNodes(const std::string& sysfs_root = "/sys",
                                const std::string& procfs_root = "/proc");

struct MemoryPlacement {
  enum class Kind {
    kAnywhere,    // as the system does
    kOnNode,      // on the one of `nodes` as long as it has room, then elsewhere
    kInterleave,  // page after page over `nodes`
  };
  Kind kind = Kind::kAnywhere;
  std::vector<int32_t> nodes;

  // "on node 1", "interleaved over nodes 0, 1"; "" for kAnywhere.
  std::string Description() const;
  friend bool operator==(const MemoryPlacement&, const MemoryPlacement&) = default;
};

// For memory that all threads on `cpus` read: on their node if they have one, else interleaved
// over theirs, so that each node's memory gives its part of the bandwidth. Nodes without memory
// count for nothing; where no node of theirs has any, all that have take part. kAnywhere if only
// one node of the machine has memory.
MemoryPlacement PlacementFor(std::span<const int32_t> cpus, std::span<const NumaNode> nodes);

// For pages of `bytes` that are not touched yet. `bytes` begins at a page boundary.
// kUnimplemented, with the system's words, where it refuses (sandboxes, emulators): slower, not
// wrong.
Status PlaceMemory(std::span<std::byte> bytes, const MemoryPlacement& placement);

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_NUMA_H_
