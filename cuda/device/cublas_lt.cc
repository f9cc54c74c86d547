#include "cuda/device/cublas_lt.h"

#include <dlfcn.h>

#include <string>
#include <utility>

namespace pagemill::gpu {
namespace {

// Constants of the library.
constexpr int kF32 = 0;  // types of elements
constexpr int kBf16 = 14;
constexpr int kE4M3 = 28;
constexpr int kComputeInF32 = 68;
constexpr int kTransposesA = 3;  // attributes of a product
constexpr int kScalesOfA = 17;
constexpr int kScalesOfB = 18;
constexpr int kScaleModeOfA = 31;
constexpr int kScaleModeOfB = 32;
constexpr int32_t kTransposed = 1;
constexpr int32_t kScalesOfRows = 3;  // modes
constexpr int32_t kScalesOf128Columns = 4;
constexpr int32_t kScalesOf128RowsAndColumns = 5;
constexpr int kMostWorkspace = 1;  // attributes of a preference
constexpr int kReductions = 3;
constexpr int kLeastAlignments[] = {5, 6, 7, 8};
constexpr uint32_t kReductionInF32 = 2;

constexpr uint32_t kAlignment = 16;  // of MatrixProduct

Status ToStatus(const CublasLtLibrary& library, int error, const char* doing) {
  if (error == 0) return OkStatus();
  return Internal(std::string("cuBLASLt failed ") + doing + ": " + library.error_text(error) +
                  " (--deterministic disables it)");
}

#if defined(__CUDACC__)

StatusOr<CublasLtLibrary> Load() {
  const char* name = nullptr;
  void* file = nullptr;
  for (const char* candidate : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    name = candidate;
    file = dlopen(candidate, RTLD_NOW | RTLD_LOCAL);
    if (file != nullptr) break;
  }
  if (file == nullptr) {
    return FailedPrecondition(std::string("cuBLASLt cannot be opened: ") + dlerror() +
                              " (pip install nvidia-cublas)");
  }
  CublasLtLibrary library = {};
  const char* missing = nullptr;
  const auto find = [&](const char* function_name, auto* function) {
    void* const found = dlsym(file, function_name);
    if (found == nullptr) missing = function_name;
    *reinterpret_cast<void**>(function) = found;
  };
  find("cublasLtCreate", &library.create);
  find("cublasLtDestroy", &library.destroy);
  find("cublasLtMatmulDescCreate", &library.create_product);
  find("cublasLtMatmulDescDestroy", &library.destroy_product);
  find("cublasLtMatmulDescSetAttribute", &library.set_of_product);
  find("cublasLtMatrixLayoutCreate", &library.create_layout);
  find("cublasLtMatrixLayoutDestroy", &library.destroy_layout);
  find("cublasLtMatmulPreferenceCreate", &library.create_preference);
  find("cublasLtMatmulPreferenceDestroy", &library.destroy_preference);
  find("cublasLtMatmulPreferenceSetAttribute", &library.set_of_preference);
  find("cublasLtMatmulAlgoGetHeuristic", &library.find_algorithms);
  find("cublasLtMatmul", &library.multiply);
  find("cublasLtGetStatusString", &library.error_text);
  find("cublasLtGetVersion", &library.version);
  if (missing == nullptr) return library;
  return FailedPrecondition(std::string(name) + " has no " + missing +
                            ": pip install --upgrade nvidia-cublas");
}

#elif defined(__HIP__)

StatusOr<CublasLtLibrary> Load() { return FailedPrecondition("AMD's GPUs have no cuBLASLt"); }

#endif

}  // namespace

#if defined(__CUDACC__) || defined(__HIP__)

StatusOr<CublasLtLibrary> CublasLtLibrary::Open() {
  static const StatusOr<CublasLtLibrary> loaded = Load();
  return loaded;
}

#else

StatusOr<CublasLtLibrary> CublasLtLibrary::Open() {
  if (!emulation::EmulatedGpu::has_cublas_lt()) {
    return FailedPrecondition("the emulated cuBLASLt is not installed");
  }
  return CublasLtLibrary{.create = emulatedCublasLtCreate,
                         .destroy = emulatedCublasLtDestroy,
                         .create_product = emulatedCublasLtMatmulDescCreate,
                         .destroy_product = emulatedCublasLtMatmulDescDestroy,
                         .set_of_product = emulatedCublasLtMatmulDescSetAttribute,
                         .create_layout = emulatedCublasLtMatrixLayoutCreate,
                         .destroy_layout = emulatedCublasLtMatrixLayoutDestroy,
                         .create_preference = emulatedCublasLtMatmulPreferenceCreate,
                         .destroy_preference = emulatedCublasLtMatmulPreferenceDestroy,
                         .set_of_preference = emulatedCublasLtMatmulPreferenceSetAttribute,
                         .find_algorithms = emulatedCublasLtMatmulAlgoGetHeuristic,
                         .multiply = emulatedCublasLtMatmul,
                         .error_text = emulatedCublasLtGetStatusString,
                         .version = emulatedCublasLtGetVersion};
}

#endif

StatusOr<std::unique_ptr<CublasLt>> CublasLt::Create(const CublasLtLibrary& library) {
  void* address = nullptr;
  const auto status = [&](int error) { return ToStatus(library, error, "to be prepared"); };
  PAGEMILL_RETURN_IF_ERROR(status(library.create(&address)));
  Owned handle(address, library.destroy);
  PAGEMILL_RETURN_IF_ERROR(status(library.create_preference(&address)));
  Owned preference(address, library.destroy_preference);
  const auto prefer = [&](int attribute, auto value) {
    return status(library.set_of_preference(preference.get(), attribute, &value, sizeof(value)));
  };
  PAGEMILL_RETURN_IF_ERROR(prefer(kMostWorkspace, uint64_t{kCublasLtWorkspaceBytes}));
  PAGEMILL_RETURN_IF_ERROR(prefer(kReductions, kReductionInF32));
  for (const int attribute : kLeastAlignments) {
    PAGEMILL_RETURN_IF_ERROR(prefer(attribute, kAlignment));
  }
  return std::unique_ptr<CublasLt>(
      new CublasLt(library, std::move(handle), std::move(preference)));
}

Status CublasLt::Set(void* description, int attribute, const void* value, size_t bytes) const {
  return ToStatus(library_, library_.set_of_product(description, attribute, value, bytes),
                  "to describe a product");
}

// The library's A is W, its B is x.
StatusOr<CublasLt::Owned> CublasLt::NewDescription(ProductScales scales) const {
  void* address = nullptr;
  PAGEMILL_RETURN_IF_ERROR(ToStatus(library_,
                                    library_.create_product(&address, kComputeInF32, kF32),
                                    "to describe a product"));
  StatusOr<Owned> description = Owned(address, library_.destroy_product);
  const auto set = [&](int attribute, int32_t value) {
    return Set(address, attribute, &value, sizeof(value));
  };
  PAGEMILL_RETURN_IF_ERROR(set(kTransposesA, kTransposed));
  if (scales == ProductScales::kNone) return description;
  const bool of_rows = scales == ProductScales::kRows;
  PAGEMILL_RETURN_IF_ERROR(
      set(kScaleModeOfA, of_rows ? kScalesOfRows : kScalesOf128RowsAndColumns));
  PAGEMILL_RETURN_IF_ERROR(set(kScaleModeOfB, of_rows ? kScalesOfRows : kScalesOf128Columns));
  return description;
}

StatusOr<void*> CublasLt::Describe(const MatrixProduct& product) {
  auto known = descriptions_.find(product.scales);
  if (known == descriptions_.end()) {
    PAGEMILL_ASSIGN_OR_RETURN(Owned made, NewDescription(product.scales));
    known = descriptions_.emplace(product.scales, std::move(made)).first;
  }
  void* const description = known->second.get();
  if (product.scales == ProductScales::kNone) return description;
  PAGEMILL_RETURN_IF_ERROR(
      Set(description, kScalesOfA, &product.w_scales, sizeof(product.w_scales)));
  PAGEMILL_RETURN_IF_ERROR(
      Set(description, kScalesOfB, &product.x_scales, sizeof(product.x_scales)));
  return description;
}

StatusOr<CublasLt::Owned> CublasLt::Layout(int type, int64_t rows, int64_t columns,
                                           int64_t stride) const {
  void* layout = nullptr;
  PAGEMILL_RETURN_IF_ERROR(
      ToStatus(library_,
               library_.create_layout(&layout, type, static_cast<uint64_t>(rows),
                                      static_cast<uint64_t>(columns), stride),
               "to describe a matrix"));
  return Owned(layout, library_.destroy_layout);
}

// The library's matrices lie in columns: to it, rows of W, x and y are columns of A, B and D, and
// the product is D = A^T B.
StatusOr<CublasLt::Prepared> CublasLt::Prepare(const MatrixProduct& product,
                                               void* description) const {
  const int type = product.scales == ProductScales::kNone ? kBf16 : kE4M3;
  PAGEMILL_ASSIGN_OR_RETURN(Owned x, Layout(type, product.columns, product.rows, product.x_stride));
  PAGEMILL_ASSIGN_OR_RETURN(Owned w,
                            Layout(type, product.columns, product.outputs, product.w_stride));
  PAGEMILL_ASSIGN_OR_RETURN(Owned y, Layout(product.wide ? kF32 : kBf16, product.outputs,
                                            product.rows, product.y_stride));
  CublasLtHeuristic found = {};
  int num_found = 0;
  // A library that fails here fails for these sizes alone, and other kernels multiply.
  const int error =
      library_.find_algorithms(handle_.get(), description, w.get(), x.get(), y.get(), y.get(),
                               preference_.get(), /*most=*/1, &found, &num_found);
  return Prepared{.x = std::move(x),
                  .w = std::move(w),
                  .y = std::move(y),
                  .algorithm = found.algorithm,
                  .has_algorithm = error == 0 && num_found == 1 && found.state == 0};
}

StatusOr<bool> CublasLt::Multiply(const MatrixProduct& product, PAGEMILL_GPU(Stream_t) stream) {
  PAGEMILL_ASSIGN_OR_RETURN(void* const description, Describe(product));
  const Sizes sizes = {product.rows,     product.outputs,  product.columns, product.x_stride,
                       product.w_stride, product.y_stride, product.wide,
                       static_cast<int64_t>(product.scales)};
  auto known = prepared_.find(sizes);
  if (known == prepared_.end()) {
    PAGEMILL_ASSIGN_OR_RETURN(Prepared prepared, Prepare(product, description));
    if (prepared_.size() >= kMostPrepared) prepared_.clear();
    known = prepared_.emplace(sizes, std::move(prepared)).first;
  }
  const Prepared& how = known->second;
  if (!how.has_algorithm) return false;
  const float alpha = 1, beta = 0;
  const int error = library_.multiply(
      handle_.get(), description, &alpha, product.w, how.w.get(), product.x, how.x.get(), &beta,
      product.y, how.y.get(), product.y, how.y.get(), &how.algorithm, product.workspace,
      static_cast<size_t>(kCublasLtWorkspaceBytes), stream);
  PAGEMILL_RETURN_IF_ERROR(ToStatus(library_, error, "to multiply"));
  return true;
}

}  // namespace pagemill::gpu
