// File: cuda/device/nccl.h
// NCCL, or RCCL for AMD's GPUs, if it is installed: moves bytes between GPUs that have no access to
// each other's memory. The library is opened when a group needs it, and never linked.
//
//   PAGEMILL_ASSIGN_OR_RETURN(const NcclLibrary library, NcclLibrary::Open());
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<Nccl> nccl, Nccl::Join(library, ranks));
//   PAGEMILL_RETURN_IF_ERROR(nccl->Exchange(sends, receives, stream));
#ifndef PAGEMILL_CUDA_DEVICE_NCCL_H_
#define PAGEMILL_CUDA_DEVICE_NCCL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cc/base/status.h"
#include "cc/device/stream.h"
#include "cuda/gpu_runtime.h"
#if !defined(__CUDACC__) && !defined(__HIP__)
#include "cuda/emulation/nccl.h"
#endif

namespace pagemill::gpu {

#if defined(__CUDACC__) || defined(__HIP__)
struct NcclId {
  char bytes[128];
};
#else
using NcclId = emulatedNcclId;
#endif

// The library's C functions. They return 0 if they succeed.
struct NcclLibrary {
  int (*get_unique_id)(NcclId* id);
  int (*comm_init_rank)(void** comm, int ranks, NcclId id, int rank);
  int (*comm_destroy)(void* comm);
  int (*group_start)();
  int (*group_end)();
  int (*send)(const void* data, size_t count, int type, int peer, void* comm,
              PAGEMILL_GPU(Stream_t) stream);
  int (*receive)(void* data, size_t count, int type, int peer, void* comm,
                 PAGEMILL_GPU(Stream_t) stream);
  const char* (*error_text)(int error);

  // Stays open. kFailedPrecondition: it is not installed, or older than 2.7.
  static StatusOr<NcclLibrary> Open();
};

class Nccl {
 public:
  // What goes to a rank, or comes from it.
  struct Part {
    void* data = nullptr;
    int64_t bytes = 0;
  };

  // A call of all ranks, on a thread whose current GPU is the rank's.
  static StatusOr<std::unique_ptr<Nccl>> Join(const NcclLibrary& library,
                                              const device::Ranks& ranks);
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  // A call of all ranks: enqueues the transfer of a part to and from each rank, by its index.
  Status Exchange(std::span<const Part> sends, std::span<const Part> receives,
                  PAGEMILL_GPU(Stream_t) stream) const;

 private:
  Nccl(const NcclLibrary& library, void* comm) : library_(library), comm_(comm) {}

  const NcclLibrary library_;
  void* const comm_;
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_DEVICE_NCCL_H_
