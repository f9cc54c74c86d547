// File: sycl/device/sycl_stream.h
// A stream of a SYCL device, as ops see it: they launch kernels by name, with parameters that are
// plain data. No header of SYCL is needed to compile an op.
//
//   struct AddParams { ... };                       // shared with the kernel's source
//   void Run(const ops::OpCall& call, ops::KernelContext& context) {
//     LaunchKernel(*context.stream, {.module = ActModule(dtype), .kernel = "add_kernel",
//                                    .groups = 12, .group_size = 128}, AddParams{...});
//   }
//
// A kernel is a free function of the source text of a KernelModule (sycl/ops/kernel_modules.h). All
// kernels of a module are compiled together by the SYCL runtime when one of them is first launched
// on a device: seconds, or less if the runtime keeps compiled kernels on disk (docs/gpu.md).
#ifndef PAGEMILL_SYCL_DEVICE_SYCL_STREAM_H_
#define PAGEMILL_SYCL_DEVICE_SYCL_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "cc/device/stream.h"
#include "sycl/device/onednn.h"

// Inside this namespace the runtime's names begin with `::sycl`.
namespace pagemill::sycl {

// Work-items of a sub-group, for which kernels are compiled. A device that has no sub-groups of
// this size is not opened.
inline constexpr int32_t kSubGroupSize = 16;

struct KernelFile {
  std::string_view path;  // as kernels include it
  std::string_view text;
};

// Kernels that are compiled together. Lives as long as the program.
struct KernelModule {
  std::string_view name;  // for messages
  std::string_view source;
  std::span<const KernelFile> files;  // that `source` may include
};

// Ranks whose devices exchange data.
inline constexpr int32_t kMaxSyclRanks = 8;

// The memory of a device through which it exchanges data with those of other ranks.
struct RankMemory {
  int32_t rank = 0;
  int32_t num_ranks = 1;
  std::byte* sent = nullptr;      // most_bytes, for data that is to be sent
  std::byte* received = nullptr;  // num_ranks * most_bytes
  int64_t most_bytes = 0;         // that a rank sends at once; a multiple of 64
};

struct KernelLaunch {
  const KernelModule& module;
  const char* kernel;
  int64_t groups = 0;  // 0: nothing is launched
  int32_t group_size = 1;
};

class SyclStream : public device::Stream {
 public:
  // `params` is the kernel's only parameter. It is copied. Errors, those of compiling the module
  // included, are reported as those of enqueued work (cc/device/stream.h), and by EndCapture().
  virtual void Launch(const KernelLaunch& launch, std::span<const std::byte> params) = 0;
  // False if the library is not installed or has no kernel for a product of these sizes.
  virtual bool CanMultiply(const MatrixProduct& product) = 0;
  // Enqueues Onednn::Multiply(). False if CanMultiply() is.
  virtual bool Multiply(const MatrixProduct& product) = 0;
  // Null unless it has joined other ranks.
  virtual const RankMemory* rank_memory() const = 0;
  // A call of all ranks, which have joined each other: `bytes` bytes at `from` of rank r go to
  // `received` + r * bytes of rank_memory(), on all ranks. The host may wait for it.
  virtual void Gather(const std::byte* from, int64_t bytes) = 0;
};

// `stream` is one of a SyclDevice.
template <typename Params>
void LaunchKernel(device::Stream& stream, const KernelLaunch& launch, const Params& params) {
  static_assert(std::is_trivially_copyable_v<Params>);
  static_cast<SyclStream&>(stream).Launch(launch, std::as_bytes(std::span(&params, 1)));
}

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_DEVICE_SYCL_STREAM_H_
