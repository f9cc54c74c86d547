#include "cuda/device/nccl.h"

#include <dlfcn.h>

#include <string>
#include <vector>

#include "cc/device/ranks.h"

namespace pagemill::gpu {
namespace {

constexpr int kBytes = 0;  // the type of elements

Status ToStatus(const NcclLibrary& library, int error, const char* doing) {
  if (error == 0) return OkStatus();
  return Internal(std::string("NCCL failed ") + doing + ": " + library.error_text(error));
}

}  // namespace

#if defined(__CUDACC__) || defined(__HIP__)

StatusOr<NcclLibrary> NcclLibrary::Open() {
#if defined(__HIP__)
  constexpr char kFile[] = "librccl.so.1";
#else
  constexpr char kFile[] = "libnccl.so.2";
#endif
  void* const file = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) {
    return FailedPrecondition(std::string(kFile) + " cannot be opened: " + dlerror());
  }
  NcclLibrary library = {};
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto* function) {
    void* const found = dlsym(file, name);
    if (found == nullptr) missing = name;
    *reinterpret_cast<void**>(function) = found;
  };
  find("ncclGetUniqueId", &library.get_unique_id);
  find("ncclCommInitRank", &library.comm_init_rank);
  find("ncclCommDestroy", &library.comm_destroy);
  find("ncclGroupStart", &library.group_start);
  find("ncclGroupEnd", &library.group_end);
  find("ncclSend", &library.send);
  find("ncclRecv", &library.receive);
  find("ncclGetErrorString", &library.error_text);
  if (missing == nullptr) return library;
  return FailedPrecondition(std::string(kFile) + " has no " + missing + ": install 2.7 or newer");
}

#else

StatusOr<NcclLibrary> NcclLibrary::Open() {
  if (!emulation::EmulatedGpu::has_nccl()) {
    return FailedPrecondition("the emulated NCCL is not installed");
  }
  return NcclLibrary{.get_unique_id = emulatedNcclGetUniqueId,
                     .comm_init_rank = emulatedNcclCommInitRank,
                     .comm_destroy = emulatedNcclCommDestroy,
                     .group_start = emulatedNcclGroupStart,
                     .group_end = emulatedNcclGroupEnd,
                     .send = emulatedNcclSend,
                     .receive = emulatedNcclRecv,
                     .error_text = emulatedNcclGetErrorString};
}

#endif

StatusOr<std::unique_ptr<Nccl>> Nccl::Join(const NcclLibrary& library,
                                           const device::Ranks& ranks) {
  NcclId id = {};
  if (ranks.rank == 0) {
    PAGEMILL_RETURN_IF_ERROR(ToStatus(library, library.get_unique_id(&id), "to make a group"));
  }
  PAGEMILL_ASSIGN_OR_RETURN(const std::vector<NcclId> ids, device::TellRanks(ranks, id));
  void* comm = nullptr;
  PAGEMILL_RETURN_IF_ERROR(
      ToStatus(library, library.comm_init_rank(&comm, ranks.num_ranks, ids[0], ranks.rank),
               "to join a group"));
  return std::unique_ptr<Nccl>(new Nccl(library, comm));
}

Nccl::~Nccl() { (void)library_.comm_destroy(comm_); }

Status Nccl::Exchange(std::span<const Part> sends, std::span<const Part> receives,
                      PAGEMILL_GPU(Stream_t) stream) const {
  int error = library_.group_start();
  for (size_t r = 0; r < sends.size() && error == 0; ++r) {
    const auto rank = static_cast<int>(r);
    const Part& send = sends[r];
    const Part& receive = receives[r];
    if (send.bytes > 0) {
      error = library_.send(send.data, static_cast<size_t>(send.bytes), kBytes, rank, comm_,
                            stream);
    }
    if (receive.bytes > 0 && error == 0) {
      error = library_.receive(receive.data, static_cast<size_t>(receive.bytes), kBytes, rank,
                               comm_, stream);
    }
  }
  const int ended = library_.group_end();
  return ToStatus(library_, error != 0 ? error : ended, "in a collective");
}

}  // namespace pagemill::gpu
