#include "cc/device/numa.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

namespace pagemill::device {
namespace {

// From the kernel's <linux/mempolicy.h>, which some systems lack.
constexpr int kMpolPreferred = 1;
constexpr int kMpolInterleave = 3;
// More than any machine has: longer lists are ignored.
constexpr int32_t kMostIds = 1 << 16;

// Parses "0-3,8,10-11"; skips what it cannot parse.
std::vector<int32_t> ParseIds(const std::string& text) {
  std::vector<int32_t> ids;
  std::istringstream list(text);
  for (std::string range; std::getline(list, range, ',');) {
    std::istringstream numbers(range);
    int32_t first = 0;
    if (!(numbers >> first)) continue;
    int32_t last = first;
    char dash = 0;
    if (numbers >> dash && (dash != '-' || !(numbers >> last))) continue;
    for (int32_t id = std::max(first, 0); id <= std::min(last, kMostIds); ++id) ids.push_back(id);
  }
  return ids;
}

std::vector<int32_t> IdsOf(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return ParseIds(line);
}

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Parses the line "Mems_allowed_list:\t0-1" of a process's status.
bool FindAllowedNodes(const std::string& procfs_root, std::vector<int32_t>* allowed) {
  constexpr std::string_view kName = "Mems_allowed_list:";
  std::ifstream status(procfs_root + "/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(kName)) continue;
    *allowed = ParseIds(line.substr(kName.size()));
    return true;
  }
  return false;
}

}  // namespace

std::vector<NumaNode> NumaNodes(const std::string& sysfs_root, const std::string& procfs_root) {
  const std::string folder = sysfs_root + "/devices/system/node/";
  const std::vector<int32_t> with_memory = IdsOf(folder + "has_memory");
  std::vector<int32_t> allowed;
  const bool all_allowed = !FindAllowedNodes(procfs_root, &allowed);
  std::vector<NumaNode> nodes;
  for (int32_t id : IdsOf(folder + "online")) {
    nodes.push_back(
        {.id = id,
         .cpus = IdsOf(folder + "node" + std::to_string(id) + "/cpulist"),
         .has_memory = Contains(with_memory, id) && (all_allowed || Contains(allowed, id))});
  }
  return nodes;
}

std::string MemoryPlacement::Description() const {
  if (kind == Kind::kAnywhere) return "";
  std::string text = kind == Kind::kOnNode ? "on node " : "interleaved over nodes ";
  for (size_t i = 0; i < nodes.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(nodes[i]);
  }
  return text;
}

MemoryPlacement PlacementFor(std::span<const int32_t> cpus, std::span<const NumaNode> nodes) {
  std::vector<int32_t> with_memory, near;
  for (const NumaNode& node : nodes) {
    if (!node.has_memory) continue;
    with_memory.push_back(node.id);
    const auto here = [&node](int32_t cpu) { return Contains(node.cpus, cpu); };
    if (std::any_of(cpus.begin(), cpus.end(), here)) near.push_back(node.id);
  }
  if (with_memory.size() < 2) return {};
  if (near.empty()) near = with_memory;
  const auto kind =
      near.size() == 1 ? MemoryPlacement::Kind::kOnNode : MemoryPlacement::Kind::kInterleave;
  return {.kind = kind, .nodes = near};
}

Status PlaceMemory(std::span<std::byte> bytes, const MemoryPlacement& placement) {
  if (placement.kind == MemoryPlacement::Kind::kAnywhere || bytes.empty()) return OkStatus();
  PAGEMILL_CHECK(!placement.nodes.empty());
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  const auto last =
      static_cast<size_t>(*std::max_element(placement.nodes.begin(), placement.nodes.end()));
  std::vector<unsigned long> mask(last / kBits + 1);
  for (int32_t node : placement.nodes) {
    const auto bit = static_cast<size_t>(node);
    mask[bit / kBits] |= 1UL << (bit % kBits);
  }
  const int policy =
      placement.kind == MemoryPlacement::Kind::kOnNode ? kMpolPreferred : kMpolInterleave;
  // The kernel reads one bit fewer than the count that it is passed.
  if (::syscall(SYS_mbind, bytes.data(), bytes.size(), policy, mask.data(), mask.size() * kBits + 1,
                0) == 0) {
    return OkStatus();
  }
  const int code = errno;
  return Unimplemented("the system refuses to place memory " + placement.Description() + ": " +
                       std::generic_category().message(code));
}

}  // namespace pagemill::device
