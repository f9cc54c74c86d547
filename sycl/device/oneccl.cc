#include "sycl/device/oneccl.h"

#include <dlfcn.h>

#include <string>
#include <vector>

#include "cc/device/ranks.h"

namespace pagemill::sycl {
namespace {

constexpr int kBytes = 1;  // the type of elements
constexpr char kName[] = "libccl.so.2";
// What it opens for GPUs, and what has the SYCL runtime that it uses.
constexpr char kOfGpus[] = "libccl.so.1";

Status ToStatus(const OnecclLibrary& library, int error, const char* doing) {
  if (error == 0) return OkStatus();
  return Internal(std::string("oneCCL failed ") + doing + ": " + library.error_text(error) +
                  " (CCL_LOG_LEVEL=info says more)");
}

// A rank's part in making a group.
struct Offer {
  OnecclId id;  // of rank 0
  bool is_ready;
};

StatusOr<OnecclLibrary> Load() {
  void* const file = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) {
    return FailedPrecondition(std::string("oneCCL cannot be opened: ") + dlerror());
  }
  OnecclLibrary library = {};
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto* function) {
    void* const found = dlsym(file, name);
    if (found == nullptr) missing = name;
    *reinterpret_cast<void**>(function) = found;
  };
  find("onecclSetDevice", &library.set_device);
  find("onecclGetUniqueId", &library.get_unique_id);
  find("onecclCommInitRank", &library.comm_init_rank);
  find("onecclCommDestroy", &library.comm_destroy);
  find("onecclAllGather", &library.all_gather);
  find("onecclGetErrorString", &library.error_text);
  if (missing != nullptr) {
    return FailedPrecondition(std::string(kName) + " has no " + missing +
                              ": install 2021.17 or newer");
  }
  // Objects of the runtime are passed to the library, so both must have the same one.
  constexpr char kOfRuntime[] = "__sycl_register_lib";
  void* const for_gpus = dlopen(kOfGpus, RTLD_LAZY | RTLD_LOCAL);
  if (for_gpus != nullptr && dlsym(for_gpus, kOfRuntime) != dlsym(RTLD_DEFAULT, kOfRuntime)) {
    return FailedPrecondition(std::string(kName) + " is for another version of the SYCL runtime");
  }
  return library;
}

}  // namespace

StatusOr<OnecclLibrary> OnecclLibrary::Open() {
  static const StatusOr<OnecclLibrary> loaded = Load();
  return loaded;
}

StatusOr<std::unique_ptr<Oneccl>> Oneccl::Join(const StatusOr<OnecclLibrary>& library,
                                               const device::Ranks& ranks, int32_t device_index) {
  Offer own = {.id = {}, .is_ready = library.ok()};
  if (library.ok()) {
    own.is_ready = library->set_device(static_cast<uint32_t>(device_index)) == 0 &&
                   (ranks.rank > 0 || library->get_unique_id(&own.id) == 0);
  }
  PAGEMILL_ASSIGN_OR_RETURN(const std::vector<Offer> offers, device::TellRanks(ranks, own));
  for (const Offer& offer : offers) {
    if (!offer.is_ready) return std::unique_ptr<Oneccl>();
  }
  void* comm = nullptr;
  const auto num_ranks = static_cast<size_t>(ranks.num_ranks);
  const Status joined =
      ToStatus(*library, library->comm_init_rank(&comm, num_ranks, offers[0].id, ranks.rank),
               "to join the ranks");
  std::unique_ptr<Oneccl> oneccl(joined.ok() ? new Oneccl(*library, comm) : nullptr);
  PAGEMILL_ASSIGN_OR_RETURN(const bool all_joined, device::OnAllRanks(ranks, joined.ok()));
  PAGEMILL_RETURN_IF_ERROR(joined);
  if (!all_joined) return Internal("oneCCL failed to join another rank");
  return oneccl;
}

Oneccl::~Oneccl() { (void)library_.comm_destroy(comm_); }

Status Oneccl::Gather(const std::byte* from, int64_t bytes, std::byte* to, void* queue) const {
  return ToStatus(library_,
                  library_.all_gather(from, to, static_cast<size_t>(bytes), kBytes, comm_, queue),
                  "to gather data of the ranks");
}

}  // namespace pagemill::sycl
