// File: sycl/device/oneccl.h
// oneCCL, Intel's library of collectives, if it is installed: copies between GPUs without the host.
// It is opened by its name and called through the functions of its C interface, so that this tree
// is compiled, linked and run without it.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<Oneccl> oneccl,
//                             Oneccl::Join(OnecclLibrary::Open(), ranks, 0));
//   if (oneccl != nullptr) {
//     PAGEMILL_RETURN_IF_ERROR(oneccl->Gather(x, bytes, all, &queue));
//   }
#ifndef PAGEMILL_SYCL_DEVICE_ONECCL_H_
#define PAGEMILL_SYCL_DEVICE_ONECCL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cc/base/status.h"
#include "cc/device/stream.h"

namespace pagemill::sycl {

struct OnecclId {
  std::byte bytes[4096];
};

// The library's C functions. They return 0 if they succeed.
struct OnecclLibrary {
  int (*set_device)(uint32_t index);  // of the calling thread, among GPUs
  int (*get_unique_id)(OnecclId* id);
  int (*comm_init_rank)(void** comm, size_t ranks, OnecclId id, int rank);
  int (*comm_destroy)(void* comm);
  int (*all_gather)(const void* from, void* to, size_t count, int type, void* comm, void* queue);
  const char* (*error_text)(int error);

  // Stays open; only the first call takes time. kFailedPrecondition: it is not installed, or uses
  // another SYCL runtime than this program. Thread-safe.
  static StatusOr<OnecclLibrary> Open();
};

class Oneccl {
 public:
  // A call of all ranks; `device_index` is that of this rank's GPU on its platform. Null, on all,
  // if one of them has no library, or one that knows no GPU. kInternal, on all: it fails to join
  // them.
  static StatusOr<std::unique_ptr<Oneccl>> Join(const StatusOr<OnecclLibrary>& library,
                                                const device::Ranks& ranks, int32_t device_index);
  ~Oneccl();
  Oneccl(const Oneccl&) = delete;
  Oneccl& operator=(const Oneccl&) = delete;

  // A call of all ranks: enqueues on a SYCL queue that `bytes` bytes of each rank go to `to`, in
  // rank order.
  Status Gather(const std::byte* from, int64_t bytes, std::byte* to, void* queue) const;

 private:
  Oneccl(const OnecclLibrary& library, void* comm) : library_(library), comm_(comm) {}

  const OnecclLibrary library_;
  void* const comm_;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_DEVICE_ONECCL_H_
