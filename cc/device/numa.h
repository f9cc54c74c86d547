// File: cc/device/numa.h
// NUMA memory nodes, and on which of them the memory of threads should lie. On a machine with one
// node, as most have, there is nothing to place.
//
//   const MemoryPlacement placement = PlacementFor(AllowedCpus(), NumaNodes());
//   Status placed = PlaceMemory(weights, placement);   // before they are touched
//
// Thread-safe; the system bounds the sizes of nodes, CPUs and lists.
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
  std::vector<int32_t>
      cpus;  // all, including those that this process may not use; empty: only memory
  bool has_memory = false;  // that this process may use

  friend bool operator==(const NumaNode&, const NumaNode&) = default;
};

// Online nodes by id; empty if the system does not report them. `sysfs_root` contains
// devices/system/node, `procfs_root` contains self/status, which lists the nodes that a cpuset
// allows.
std::vector<NumaNode> NumaNodes(const std::string& sysfs_root = "/sys",
                                const std::string& procfs_root = "/proc");

struct MemoryPlacement {
  enum class Kind {
    kAnywhere,    // system default
    kOnNode,      // on the single node of `nodes` while it has room, then elsewhere
    kInterleave,  // page by page over `nodes`
  };
  Kind kind = Kind::kAnywhere;
  std::vector<int32_t> nodes;

  // "on node 1", "interleaved over nodes 0, 1"; "" for kAnywhere.
  std::string Description() const;
  friend bool operator==(const MemoryPlacement&, const MemoryPlacement&) = default;
};

// Placement of memory that all threads on `cpus` read: on their node if they have one, else
// interleaved over theirs, to use the bandwidth of each. Nodes without memory are skipped; if none
// of theirs has memory, all nodes with memory are used. kAnywhere if only one node of the machine
// has memory.
MemoryPlacement PlacementFor(std::span<const int32_t> cpus, std::span<const NumaNode> nodes);

// Places pages of `bytes`, which begins at a page boundary and has not been touched yet.
// kUnimplemented, with the system's error, if it refuses (sandboxes, emulators): slower but
// correct.
Status PlaceMemory(std::span<std::byte> bytes, const MemoryPlacement& placement);

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_NUMA_H_
