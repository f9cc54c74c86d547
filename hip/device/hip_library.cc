#include "hip/device/hip_library.h"

#include <dlfcn.h>

#include <string_view>

namespace pagemill::gpu {
namespace {

// What clang 22 compiles needs this version, as hipRuntimeGetVersion tells it.
constexpr int kOldestVersion = 6'03'00000;
constexpr char kInstall[] = "; install ROCm 6.3 or newer";

// The loader's own folders first, as for a library that is linked. Version 5 is too old, and said to
// be.
constexpr const char* kFiles[] = {
    "libamdhip64.so.7",
    "libamdhip64.so.6",
    "/opt/rocm/lib/libamdhip64.so.7",
    "/opt/rocm/lib/libamdhip64.so.6",
    "libamdhip64.so.5",
};

// The first file that opens; otherwise null, and in `why` the reason.
void* Open(std::string& why) {
  why = "ROCm's " + std::string(kFiles[0]) + " is not installed";
  for (const char* file : kFiles) {
    void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
    // The text begins with the file that is missing: this one, or one that this one needs.
    const std::string_view error = dlerror();
    if (!error.starts_with(file)) why = std::string(file) + " cannot be loaded: " + std::string(error);
  }
  return nullptr;
}

std::string VersionName(int version) {
  return std::to_string(version / 10'000'000) + "." + std::to_string(version / 100'000 % 100);
}

template <typename Function>
void Find(void* library, const char* name, Function& function, std::string& lacking) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr && lacking.empty()) lacking = name;
}

HipLibrary Load() {
  HipLibrary hip;
  void* const library = Open(hip.missing);
  if (library == nullptr) {
    hip.missing += kInstall;
    return hip;
  }
  hip.missing.clear();
  std::string lacking;
  hipError_t (*get_version)(int*) = nullptr;
  Find(library, "hipRuntimeGetVersion", get_version, lacking);
  if (int version = 0; get_version != nullptr && get_version(&version) == hipSuccess &&
                       version < kOldestVersion) {
    hip.missing = "ROCm's HIP runtime is of version " + VersionName(version) + kInstall;
    return hip;
  }
#define PAGEMILL_HIP_FIND(Result, name, parameters, arguments) \
  Find(library, #name, hip.functions.name, lacking);
  PAGEMILL_HIP_FUNCTIONS(PAGEMILL_HIP_FIND)
#undef PAGEMILL_HIP_FIND
  std::string newer;  // that an older runtime lacks
#define PAGEMILL_HIP_FIND(Result, name, parameters, arguments) \
  Find(library, #name, hip.functions.name, newer);
  PAGEMILL_HIP_LIBRARY_FUNCTIONS(PAGEMILL_HIP_FIND)
#undef PAGEMILL_HIP_FIND
  Find(library, "hipGetErrorString", hip.functions.hipGetErrorString, lacking);
  if (!lacking.empty()) hip.missing = "ROCm's HIP runtime has no " + lacking + kInstall;
  return hip;
}

}  // namespace

const HipLibrary& LoadedHipLibrary() {
  // Never destroyed: kernels are unregistered when the process ends.
  static const HipLibrary& hip = *new HipLibrary(Load());
  return hip;
}

}  // namespace pagemill::gpu
