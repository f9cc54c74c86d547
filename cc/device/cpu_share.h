// File: cc/device/cpu_share.h
// Assigns the CPUs of this machine to the processes that share it and pins threads to them, so that
// processes do not compete for cores and memory lies near the thread that touches it first.
//
//   const std::vector<int32_t> share = CpuShare(AllowedCpus(), /*index=*/1, /*count=*/2);
//   ScopedAffinity pinned(share);   // threads started in this scope inherit it
//
// Thread-safe; an affinity belongs to its thread.
#ifndef PAGEMILL_CC_DEVICE_CPU_SHARE_H_
#define PAGEMILL_CC_DEVICE_CPU_SHARE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pagemill::device {

// The CPUs of share `index` of `count` equal shares of `allowed`: whole cores (all hardware threads
// of each), neighbours in (package, core) order. Empty if there are fewer cores than shares.
std::vector<int32_t> CpuShare(std::span<const int32_t> allowed, int32_t index, int32_t count,
                              const std::string& sysfs_root = "/sys");

// Pins the calling thread to `cpus`; does nothing for an empty list or if the kernel refuses.
void PinThisThread(std::span<const int32_t> cpus);

// Pins the calling thread to `cpus`; the destructor restores the previous affinity.
class ScopedAffinity {
 public:
  explicit ScopedAffinity(std::span<const int32_t> cpus);
  ~ScopedAffinity();
  ScopedAffinity(const ScopedAffinity&) = delete;
  ScopedAffinity& operator=(const ScopedAffinity&) = delete;

 private:
  const std::vector<int32_t> before_;
};

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_CPU_SHARE_H_
