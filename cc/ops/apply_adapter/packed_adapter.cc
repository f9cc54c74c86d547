#include "cc/ops/apply_adapter/packed_adapter.h"

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "cc/tensor/to_float.h"

namespace pagemill::ops {
namespace {

std::string ShapeText(const TensorView& view) {
  std::string text(Info(view.dtype).name);
  for (int32_t i = 0; i < view.rank; ++i) {
    text += (i == 0 ? " [" : ", ") + std::to_string(view.shape[static_cast<size_t>(i)]);
  }
  return view.rank == 0 ? "nothing" : text + "]";
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

Status CheckMatrix(std::string_view name, const TensorView& view, int64_t rows, int64_t columns) {
  if (view.rank == 2 && IsFloat(view.dtype) && view.shape[0] == rows && view.shape[1] == columns) {
    return OkStatus();
  }
  return InvalidArgument(std::string(name) + " must be f32, bf16 or f16 [" + std::to_string(rows) +
                         ", " + std::to_string(columns) + "], got " + ShapeText(view));
}

Status CopyVector(std::string_view name, const TensorView& view, int64_t size,
                  std::vector<float>* copy) {
  if (view.rank == 0) return OkStatus();
  if (view.rank != 1 || view.dtype != DType::kF32 || view.shape[0] != size) {
    return InvalidArgument(std::string(name) + " must be f32 [" + std::to_string(size) + "], got " +
                           ShapeText(view));
  }
  copy->resize(static_cast<size_t>(size));
  ToFloat(view, copy->data());
  return OkStatus();
}

// `view` [rows, columns] as dense rows of `T`, or as dense columns.
template <typename T>
std::vector<std::byte> Dense(std::vector<T> elements, int64_t rows, int64_t columns,
                             bool transposed) {
  std::vector<std::byte> bytes(elements.size() * sizeof(T));
  T* out = reinterpret_cast<T*>(bytes.data());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      out[transposed ? c * rows + r : r * columns + c] =
          elements[static_cast<size_t>(r * columns + c)];
    }
  }
  return bytes;
}

std::vector<std::byte> PackMatrix(const TensorView& view, DType dtype, bool transposed) {
  const int64_t rows = view.shape[0], columns = view.shape[1];
  if (dtype == DType::kBF16) {
    std::vector<uint16_t> dense(static_cast<size_t>(rows * columns));
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(&dense[static_cast<size_t>(r * columns)], view.Row<uint16_t>(r),
                  static_cast<size_t>(columns) * sizeof(uint16_t));
    }
    return Dense(std::move(dense), rows, columns, transposed);
  }
  std::vector<float> dense(static_cast<size_t>(rows * columns));
  ToFloat(view, dense.data());
  return Dense(std::move(dense), rows, columns, transposed);
}

}  // namespace

StatusOr<PackedAdapter> PackedAdapter::Make(const AdapterTensors& tensors, int64_t out,
                                            int64_t in) {
  PackedAdapter packed;
  AdapterMatrices& m = packed.matrices_;
  PAGEMILL_RETURN_IF_ERROR(CopyVector("the gain", tensors.gain, out, &packed.gain_));
  PAGEMILL_RETURN_IF_ERROR(CopyVector("the offset", tensors.offset, out, &packed.offset_));
  if (!packed.gain_.empty()) m.gain = packed.gain_.data();
  if (!packed.offset_.empty()) m.offset = packed.offset_.data();
  if (tensors.a.rank == 0 && tensors.b.rank == 0) return packed;
  const int64_t rank = tensors.a.rank == 0 ? 0 : tensors.a.shape[0];
  if (rank < 1 || rank > kMaxAdapterRank) {
    return InvalidArgument("lora_A must have 1 to " + std::to_string(kMaxAdapterRank) +
                           " rows, got " + std::to_string(rank));
  }
  PAGEMILL_RETURN_IF_ERROR(CheckMatrix("lora_A", tensors.a, rank, in));
  PAGEMILL_RETURN_IF_ERROR(CheckMatrix("lora_B", tensors.b, out, rank));
  const bool narrow = tensors.a.dtype == DType::kBF16 && tensors.b.dtype == DType::kBF16;
  m.dtype = narrow ? DType::kBF16 : DType::kF32;
  m.rank = static_cast<int32_t>(rank);
  m.scale = tensors.scale;
  packed.a_ = PackMatrix(tensors.a, m.dtype, /*transposed=*/false);
  packed.b_ = PackMatrix(tensors.b, m.dtype, /*transposed=*/true);
  m.a = packed.a_.data();
  m.b = packed.b_.data();
  return packed;
}

int64_t PackedAdapter::bytes() const {
  return static_cast<int64_t>(a_.size() + b_.size() +
                              (gain_.size() + offset_.size()) * sizeof(float));
}

}  // namespace pagemill::ops
