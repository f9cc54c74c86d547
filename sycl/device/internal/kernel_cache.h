// File: sycl/device/internal/kernel_cache.h
// The compiled kernels of a device. A module is compiled when one of its kernels is first needed.
// Thread-safe.
#ifndef PAGEMILL_SYCL_DEVICE_INTERNAL_KERNEL_CACHE_H_
#define PAGEMILL_SYCL_DEVICE_INTERNAL_KERNEL_CACHE_H_

#include <map>
#include <mutex>
#include <string>
#include <sycl/sycl.hpp>
#include <utility>

#include "cc/base/status.h"
#include "sycl/device/sycl_stream.h"

namespace pagemill::sycl {

class KernelCache {
 public:
  explicit KernelCache(::sycl::context context) : context_(std::move(context)) {}

  // kInternal with the compiler's messages if the module cannot be compiled.
  StatusOr<::sycl::kernel> Find(const KernelModule& module, const std::string& kernel);
  Status Compile(const KernelModule& module);  // as the first Find() does
  // Held while kernels get their parameters. All streams of a device use the same kernels, which
  // the runtime does not lock when it finalizes or replays a graph of them.
  std::unique_lock<std::mutex> LockParameters() { return std::unique_lock(parameters_mutex_); }

 private:
  using Bundle = ::sycl::kernel_bundle<::sycl::bundle_state::executable>;
  // mutex_ is held.
  StatusOr<Bundle*> BundleOf(const KernelModule& module);

  const ::sycl::context context_;
  std::mutex parameters_mutex_;
  std::mutex mutex_;  // of what follows
  std::map<const KernelModule*, Bundle> bundles_;
  std::map<std::pair<const KernelModule*, std::string>, ::sycl::kernel> kernels_;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_DEVICE_INTERNAL_KERNEL_CACHE_H_
