// File: cc/device/cache_sizes.h
// The data caches of the first CPU, as reported by Linux.
#ifndef PAGEMILL_CC_DEVICE_CACHE_SIZES_H_
#define PAGEMILL_CC_DEVICE_CACHE_SIZES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace pagemill::device {

struct CacheSize {
  int32_t level = 0;  // 1, 2, 3
  int64_t bytes = 0;  // of one cache
  int32_t cpus = 0;   // logical CPUs that share it

  friend bool operator==(const CacheSize&, const CacheSize&) = default;
};

// Data and unified caches by level; empty if the system does not report them (some Arm machines).
// A virtual machine's numbers may be those of the whole host.
std::vector<CacheSize> DataCaches(const std::string& sysfs_root = "/sys");

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_CACHE_SIZES_H_
