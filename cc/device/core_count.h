// File: cc/device/core_count.h
// How many cores this process may compute on. Two hardware threads of one core share its vector
// units, so they count once; a container's CPU quota counts as that many cores, rounded down.
#ifndef PAGEMILL_CC_DEVICE_CORE_COUNT_H_
#define PAGEMILL_CC_DEVICE_CORE_COUNT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace pagemill::device {

struct CoreCountSources {
  std::vector<int32_t> allowed_cpus;  // logical CPUs of the affinity mask
  std::string sysfs_root = "/sys";    // holds devices/system/cpu and fs/cgroup
  std::string procfs_root = "/proc";  // holds self/cgroup
};

// The affinity mask of the calling thread; empty if the kernel does not report it.
std::vector<int32_t> AllowedCpus();

// Distinct physical cores among the allowed CPUs, at most the tightest cgroup quota (v1 or v2) from
// this process's group up to the root. At least 1. Missing files imply no limit.
int32_t CountCores(const CoreCountSources& sources);

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_CORE_COUNT_H_
