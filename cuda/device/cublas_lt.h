// File: cuda/device/cublas_lt.h
// cuBLASLt, if it is installed: NVIDIA's products of matrices in bf16 and, with scales, in e4m3.
// The library is opened when it is first asked for, and never linked. AMD's is not used.
//
//   PAGEMILL_ASSIGN_OR_RETURN(const CublasLtLibrary library, CublasLtLibrary::Open());
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<CublasLt> cublas_lt, CublasLt::Create(library));
//   PAGEMILL_ASSIGN_OR_RETURN(const bool is_enqueued, cublas_lt->Multiply(product, stream));
//
// Which algorithm multiplies, and so the order of sums, depends on all sizes of a product: a row of
// y may have other bits beside other rows.
#ifndef PAGEMILL_CUDA_DEVICE_CUBLAS_LT_H_
#define PAGEMILL_CUDA_DEVICE_CUBLAS_LT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "cc/base/status.h"
#include "cuda/gpu_runtime.h"
#if !defined(__CUDACC__) && !defined(__HIP__)
#include "cuda/emulation/cublas_lt.h"
#endif

namespace pagemill::gpu {

#if defined(__CUDACC__) || defined(__HIP__)
struct CublasLtAlgorithm {
  uint64_t data[8];
};
struct CublasLtHeuristic {
  CublasLtAlgorithm algorithm;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
// What Multiply() needs, for all algorithms of the newest GPUs.
inline constexpr int64_t kCublasLtWorkspaceBytes = int64_t{32} << 20;
#else
using CublasLtAlgorithm = emulatedCublasLtAlgorithm;
using CublasLtHeuristic = emulatedCublasLtHeuristic;
inline constexpr int64_t kCublasLtWorkspaceBytes = emulatedCublasLtWorkspaceBytes;
#endif
inline constexpr int64_t kCublasLtWorkspaceAlignment = 256;

// The library's C functions. They return 0 if they succeed; handles and descriptors are opaque.
struct CublasLtLibrary {
  int (*create)(void** handle);
  int (*destroy)(void* handle);
  int (*create_product)(void** product, int compute_type, int scale_type);
  int (*destroy_product)(void* product);
  int (*set_of_product)(void* product, int attribute, const void* value, size_t bytes);
  int (*create_layout)(void** layout, int type, uint64_t rows, uint64_t columns, int64_t stride);
  int (*destroy_layout)(void* layout);
  int (*create_preference)(void** preference);
  int (*destroy_preference)(void* preference);
  int (*set_of_preference)(void* preference, int attribute, const void* value, size_t bytes);
  int (*find_algorithms)(void* handle, void* product, void* a, void* b, void* c, void* d,
                         void* preference, int most, CublasLtHeuristic* found, int* num_found);
  int (*multiply)(void* handle, void* product, const void* alpha, const void* a, void* a_layout,
                  const void* b, void* b_layout, const void* beta, const void* c, void* c_layout,
                  void* d, void* d_layout, const CublasLtAlgorithm* algorithm, void* workspace,
                  size_t workspace_bytes, PAGEMILL_GPU(Stream_t) stream);
  const char* (*error_text)(int error);
  size_t (*version)();  // 120901 for 12.9.1

  // True if it multiplies matrices with ProductScales on GPUs of this compute capability.
  bool HasScales(int32_t major, int32_t minor) const {
    return version() >= 120900 && major == 9 && minor == 0;
  }

  // Stays open; only the first call takes time. kFailedPrecondition: it is not installed, or older
  // than 12. Thread-safe.
  static StatusOr<CublasLtLibrary> Open();
};

// The scales, f32, of the elements of x and W.
enum class ProductScales : uint8_t {
  kNone,
  kRows,  // of a row of x, [rows]; of a row of W, [outputs]
  // Of 128 columns of a row of x, [columns / 128, rows]; of 128 rows and 128 columns of W,
  // [outputs / 128, columns / 128], in rows that begin at multiples of 4 elements. The last blocks
  // may be smaller.
  kBlocks,
};

// y = x W^T of matrices in rows: x [rows, columns], W [outputs, columns], bf16, or e4m3 with
// scales; y bf16 or f32 [rows, outputs], each rounded once from a sum in f32. Addresses, and rows
// of x and W, are at multiples of 16 bytes. With scales this holds for scales and rows of y, too,
// rows of all three are a multiple of 16 bytes long, and with kBlocks `rows` is one of 4. No size
// is 0.
struct MatrixProduct {
  const void* x = nullptr;
  const void* w = nullptr;
  void* y = nullptr;
  int64_t rows = 0, outputs = 0, columns = 0;
  int64_t x_stride = 0, w_stride = 0, y_stride = 0;  // elements from one row to the next
  bool wide = false;                                 // y is f32
  ProductScales scales = ProductScales::kNone;
  const float* x_scales = nullptr;
  const float* w_scales = nullptr;
  std::byte* workspace = nullptr;  // kCublasLtWorkspaceBytes, at their alignment
};

// Thread safety: used by one thread.
class CublasLt {
 public:
  // For the calling thread's current GPU.
  static StatusOr<std::unique_ptr<CublasLt>> Create(const CublasLtLibrary& library);

  // Enqueues a product. False if the library has no algorithm for it. What it finds out about a
  // product is kept for the next one of the same sizes.
  StatusOr<bool> Multiply(const MatrixProduct& product, PAGEMILL_GPU(Stream_t) stream);

 private:
  using Owned = std::unique_ptr<void, int (*)(void*)>;
  using Sizes = std::array<int64_t, 8>;
  static constexpr size_t kMostPrepared = 4096;

  // How the library multiplies matrices of some sizes.
  struct Prepared {
    Owned x, w, y;  // layouts
    CublasLtAlgorithm algorithm = {};
    bool has_algorithm = false;
  };

  CublasLt(const CublasLtLibrary& library, Owned handle, Owned preference)
      : library_(library), handle_(std::move(handle)), preference_(std::move(preference)) {}

  // The library's description of a product, which has its scales until the next call.
  StatusOr<void*> Describe(const MatrixProduct& product);
  StatusOr<Owned> NewDescription(ProductScales scales) const;
  Status Set(void* description, int attribute, const void* value, size_t bytes) const;
  StatusOr<Prepared> Prepare(const MatrixProduct& product, void* description) const;
  StatusOr<Owned> Layout(int type, int64_t rows, int64_t columns, int64_t stride) const;

  const CublasLtLibrary library_;
  const Owned handle_, preference_;
  std::map<ProductScales, Owned> descriptions_;
  std::map<Sizes, Prepared> prepared_;
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_DEVICE_CUBLAS_LT_H_
