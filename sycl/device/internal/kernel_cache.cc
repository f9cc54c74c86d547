#include "sycl/device/internal/kernel_cache.h"

#include "sycl/device/internal/status.h"

namespace pagemill::sycl {
namespace {

namespace experimental = ::sycl::ext::oneapi::experimental;

}  // namespace

StatusOr<KernelCache::Bundle*> KernelCache::BundleOf(const KernelModule& module) {
  const auto found = bundles_.find(&module);
  if (found != bundles_.end()) return &found->second;
  const Status built = Guarded([&] {
    experimental::include_files files;
    for (const KernelFile& file : module.files) {
      files.add(std::string(file.path), std::string(file.text));
    }
    // Files include each other by their paths from the root.
    const experimental::properties options{experimental::build_options{"-I."}};
    auto source = experimental::create_kernel_bundle_from_source(
        context_, experimental::source_language::sycl, std::string(module.source),
        experimental::properties{files});
    bundles_.emplace(&module, experimental::build(source, options));
  });
  if (built.ok()) return &bundles_.at(&module);
  return Internal("the kernels of " + std::string(module.name) +
                  " cannot be compiled: " + std::string(built.message()));
}

Status KernelCache::Compile(const KernelModule& module) {
  std::lock_guard lock(mutex_);
  return BundleOf(module).status();
}

StatusOr<::sycl::kernel> KernelCache::Find(const KernelModule& module, const std::string& kernel) {
  std::lock_guard lock(mutex_);
  const auto found = kernels_.find({&module, kernel});
  if (found != kernels_.end()) return found->second;
  PAGEMILL_ASSIGN_OR_RETURN(Bundle* const bundle, BundleOf(module));
  PAGEMILL_RETURN_IF_ERROR(Guarded([&] {
    kernels_.emplace(std::pair(&module, kernel), bundle->ext_oneapi_get_kernel(kernel));
  }));
  return kernels_.at({&module, kernel});
}

}  // namespace pagemill::sycl
