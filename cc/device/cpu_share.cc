#include "cc/device/cpu_share.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <utility>

#include "cc/device/core_count.h"

namespace pagemill::device {
namespace {

int64_t TopologyId(const std::string& sysfs_root, int32_t cpu, const char* name, int64_t unknown) {
  std::ifstream file(sysfs_root + "/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" +
                     name);
  int64_t id = unknown;
  return file >> id ? id : unknown;
}

}  // namespace

std::vector<int32_t> CpuShare(std::span<const int32_t> allowed, int32_t index, int32_t count,
                              const std::string& sysfs_root) {
  std::map<std::pair<int64_t, int64_t>, std::vector<int32_t>> cores;  // by (package, core)
  for (int32_t cpu : allowed) {
    const int64_t package = TopologyId(sysfs_root, cpu, "physical_package_id", 0);
    cores[{package, TopologyId(sysfs_root, cpu, "core_id", cpu)}].push_back(cpu);
  }
  std::vector<int32_t> share;
  const auto total = static_cast<int64_t>(cores.size());
  if (total < count) return share;
  const int64_t begin = total * index / count, end = total * (index + 1) / count;
  int64_t at = 0;
  for (const auto& [core, cpus] : cores) {
    if (at >= begin && at < end) share.insert(share.end(), cpus.begin(), cpus.end());
    ++at;
  }
  std::sort(share.begin(), share.end());
  return share;
}

void PinThisThread(std::span<const int32_t> cpus) {
  if (cpus.empty()) return;
  const int32_t size = *std::max_element(cpus.begin(), cpus.end()) + 1;
  cpu_set_t* set = CPU_ALLOC(size);
  if (set == nullptr) return;
  const size_t bytes = CPU_ALLOC_SIZE(size);
  CPU_ZERO_S(bytes, set);
  for (int32_t cpu : cpus) CPU_SET_S(cpu, bytes, set);
  sched_setaffinity(0, bytes, set);  // failure only costs speed
  CPU_FREE(set);
}

ScopedAffinity::ScopedAffinity(std::span<const int32_t> cpus)
    : before_(cpus.empty() ? std::vector<int32_t>() : AllowedCpus()) {
  PinThisThread(cpus);
}

ScopedAffinity::~ScopedAffinity() { PinThisThread(before_); }

}  // namespace pagemill::device
