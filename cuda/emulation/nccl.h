// File: cuda/emulation/nccl.h
// The functions of NCCL that cuda/device/nccl.h opens, for ranks that are threads on emulated GPUs:
// what a stream sends lies in memory of the process until another stream receives it.
#ifndef PAGEMILL_CUDA_EMULATION_NCCL_H_
#define PAGEMILL_CUDA_EMULATION_NCCL_H_

#include <cstddef>

#include "cuda/emulation/runtime.h"

struct emulatedNcclId {
  char bytes[128];
};

int emulatedNcclGetUniqueId(emulatedNcclId* id);
int emulatedNcclCommInitRank(void** comm, int ranks, emulatedNcclId id, int rank);
int emulatedNcclCommDestroy(void* comm);
int emulatedNcclGroupStart();
int emulatedNcclGroupEnd();
// In a group; `type` is 0, bytes.
int emulatedNcclSend(const void* data, size_t count, int type, int peer, void* comm,
                     emulatedStream_t stream);
int emulatedNcclRecv(void* data, size_t count, int type, int peer, void* comm,
                     emulatedStream_t stream);
const char* emulatedNcclGetErrorString(int error);

#endif  // PAGEMILL_CUDA_EMULATION_NCCL_H_
