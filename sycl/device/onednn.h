// File: sycl/device/onednn.h
// Products of matrices by oneDNN, Intel's library, where it is installed (pip install onednn). It
// is opened by its name and called through the functions of its C interface, version 3, so that
// this tree is compiled, linked and run without it. Ops use SyclStream::Multiply().
//
//   PAGEMILL_ASSIGN_OR_RETURN(const OnednnLibrary library, OnednnLibrary::Open());
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<Onednn> onednn,
//                             Onednn::Create(library, &device, &context, &queue));
//   PAGEMILL_ASSIGN_OR_RETURN(const bool is_enqueued, onednn->Multiply(product));
#ifndef PAGEMILL_SYCL_DEVICE_ONEDNN_H_
#define PAGEMILL_SYCL_DEVICE_ONEDNN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "cc/base/status.h"
#include "cc/tensor/dtype.h"

namespace pagemill::sycl {

// What a product takes of the workspace.
inline constexpr int64_t kOnednnWorkspaceBytes = int64_t{32} << 20;
// Matrices and workspaces are at multiples of it; GPUs read tiles that begin at such.
inline constexpr int64_t kOnednnAlignment = 64;

// The library's C functions. They return 0 if they succeed; objects are opaque.
struct OnednnLibrary {
  struct Argument {
    int index;
    void* memory;
  };
  int (*create_engine)(void** engine, const void* device, const void* context);
  int (*destroy_engine)(void* engine);
  int (*create_stream)(void** stream, void* engine, void* queue);
  int (*destroy_stream)(void* stream);
  int (*create_attributes)(void** attributes);
  int (*destroy_attributes)(void* attributes);
  int (*set_scratchpad_mode)(void* attributes, int mode);
  int (*create_layout)(void** layout, int rank, const int64_t* sizes, int type,
                       const int64_t* strides);
  int (*destroy_layout)(void* layout);
  size_t (*bytes_of_layout)(const void* layout);
  int (*describe_product)(void** description, void* engine, const void* x, const void* w,
                          const void* bias, const void* y, const void* attributes);
  int (*destroy_description)(void* description);
  const void* (*layout_of)(const void* description, int what, int index);
  int (*create_product)(void** product, const void* description);
  int (*destroy_product)(void* product);
  int (*create_memory)(void** memory, const void* layout, void* engine, int kind, void* address);
  int (*destroy_memory)(void* memory);
  int (*execute)(const void* product, void* stream, int num_arguments, const Argument* arguments);

  // Stays open; only the first call takes time. kFailedPrecondition: it is not installed, or uses
  // another SYCL runtime than this program. Thread-safe.
  static StatusOr<OnednnLibrary> Open();
};

// y = x W^T + bias of matrices in rows: x [rows, columns], W [outputs, columns], y [rows, outputs].
// Sums are f32, and rounded once. Addresses are at multiples of kOnednnAlignment. No size is 0.
struct MatrixProduct {
  DType type = DType::kF32;  // of x, W and y: f32, bf16 or f16
  bool f32_result = false;   // y is f32
  const void* x = nullptr;
  const void* w = nullptr;
  const float* bias = nullptr;  // [outputs], or null
  void* y = nullptr;
  int64_t rows = 0, outputs = 0, columns = 0;
  int64_t x_stride = 0, w_stride = 0, y_stride = 0;  // elements from one row to the next
  std::byte* workspace = nullptr;                    // kOnednnWorkspaceBytes
};

// Thread safety: used by one thread. The library's objects throw the exceptions of the runtime.
class Onednn {
 public:
  // The addresses are those of a ::sycl::device, ::sycl::context and ::sycl::queue, which the
  // library copies.
  static StatusOr<std::unique_ptr<Onednn>> Create(const OnednnLibrary& library, const void* device,
                                                  const void* context, void* queue);

  // False if the library has no kernel for a product of these sizes. What it prepares is kept for
  // the next one of the same sizes.
  StatusOr<bool> CanMultiply(const MatrixProduct& product);
  // Enqueues a product. False if CanMultiply() is.
  StatusOr<bool> Multiply(const MatrixProduct& product);

 private:
  using Owned = std::unique_ptr<void, int (*)(void*)>;
  using Sizes = std::array<int64_t, 9>;
  static constexpr size_t kMostPrepared = 1024;

  // How the library multiplies matrices of some sizes.
  struct Prepared {
    Owned description;
    Owned product;  // null: it has no kernel
  };

  Onednn(const OnednnLibrary& library, Owned engine, Owned stream, Owned attributes)
      : library_(library),
        engine_(std::move(engine)),
        stream_(std::move(stream)),
        attributes_(std::move(attributes)) {}

  StatusOr<const Prepared*> Find(const MatrixProduct& product);
  StatusOr<Prepared> Prepare(const MatrixProduct& product) const;
  int64_t ScratchpadBytes(const Prepared& prepared) const;
  Status Execute(const Prepared& prepared, const MatrixProduct& product) const;
  StatusOr<Owned> Layout(DType type, int64_t rows, int64_t columns, int64_t row_stride,
                         int64_t column_stride) const;

  const OnednnLibrary library_;
  const Owned engine_, stream_, attributes_;
  std::map<Sizes, Prepared> prepared_;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_DEVICE_ONEDNN_H_
