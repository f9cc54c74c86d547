#include "cuda/emulation/cublas_lt.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>

#include "cc/base/status.h"
#include "cc/device/testing/test_device.h"
#include "cc/tensor/float16.h"
#include "cc/tensor/float8.h"

namespace pagemill::gpu::emulation {
namespace {

using device::testing::TestWorker;

constexpr int kInvalidValue = 7, kNotSupported = 15;
constexpr int kF32 = 0, kBf16 = 14, kE4M3 = 28, kComputeInF32 = 68;
constexpr int kTransposesA = 3, kScalesOfA = 17, kScalesOfB = 18, kScaleModeOfA = 31,
              kScaleModeOfB = 32;
constexpr int32_t kOneScale = 0, kScalesOfRows = 3, kScalesOf128Columns = 4,
                  kScalesOf128RowsAndColumns = 5;
constexpr size_t kScaleModeVersion = 120900;
constexpr int64_t kScaledColumns = 128;  // of the last two, and rows of the last
constexpr int kMostWorkspace = 1, kReductions = 3, kFirstAlignment = 5;
constexpr uint32_t kReductionInF32 = 2;

std::atomic<int64_t> num_products = 0;
std::atomic<int64_t> num_searches = 0;
std::atomic<size_t> version = kScaleModeVersion;

bool IsAligned(const void* address, uint64_t alignment) {
  return reinterpret_cast<uintptr_t>(address) % alignment == 0;
}

struct Scales {
  int32_t mode = kOneScale;
  const float* data = nullptr;
};

struct Product {
  int compute_type, scale_type;
  int32_t transposes_a = 0;
  Scales of_a = {}, of_b = {};

  bool HasScales() const {
    return of_a.mode != kOneScale || of_b.mode != kOneScale || of_a.data != nullptr ||
           of_b.data != nullptr;
  }
  bool ScalesFit() const {
    const bool of_rows = of_a.mode == kScalesOfRows && of_b.mode == kScalesOfRows;
    return of_a.data != nullptr && of_b.data != nullptr && IsAligned(of_a.data, 16) &&
           IsAligned(of_b.data, 16) && (of_rows || HasBlocks());
  }
  bool HasBlocks() const {
    return of_a.mode == kScalesOf128RowsAndColumns && of_b.mode == kScalesOf128Columns;
  }
};

struct Layout {
  int type;
  int64_t rows, columns, stride;

  int64_t ElementBytes() const { return type == kF32 ? 4 : type == kE4M3 ? 1 : 2; }
  int64_t Bytes() const { return ((columns - 1) * stride + rows) * ElementBytes(); }
  // Columns begin, and end, at multiples of 16 bytes.
  bool IsWhole() const {
    return rows * ElementBytes() % 16 == 0 && stride * ElementBytes() % 16 == 0;
  }
};

struct Preference {
  uint64_t workspace_bytes = 0;
  uint32_t reductions = 7;
  uint32_t alignments[4] = {256, 256, 256, 256};  // of A, B, C and D
};

template <typename T>
int Set(T* member, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) return kInvalidValue;
  std::memcpy(member, value, bytes);
  return 0;
}

int64_t DivideUp(int64_t count, int64_t by) { return (count + by - 1) / by; }

// A product of matrices in columns, D = A^T B: A [k, m], B [k, n], D [m, n].
struct Sizes {
  Layout a, b, d;
  Product product;

  bool Fit() const {
    const auto is_valid = [](const Layout& layout) {
      return layout.rows > 0 && layout.columns > 0 && layout.stride >= layout.rows;
    };
    return is_valid(a) && is_valid(b) && is_valid(d) && a.rows == b.rows && d.rows == a.columns &&
           d.columns == b.columns;
  }
  bool HaveAlgorithm() const {
    if (a.type != b.type || (d.type != kBf16 && d.type != kF32) || d.rows == 1) return false;
    if (a.type == kBf16) return true;
    const bool are_fours = d.rows % 4 == 0 && d.columns % 4 == 0;
    return a.type == kE4M3 && a.IsWhole() && b.IsWhole() && d.IsWhole() &&
           (!product.HasBlocks() || are_fours);
  }
  bool ScalesFit() const { return a.type == kE4M3 ? product.ScalesFit() : !product.HasScales(); }
  // Of 128 elements along K.
  int64_t Groups() const { return DivideUp(a.rows, kScaledColumns); }
  int64_t ScalesOfA() const {
    return product.HasBlocks() ? DivideUp(d.rows, kScaledColumns) * DivideUp(Groups(), 4) * 4
                               : d.rows;
  }
  int64_t ScalesOfB() const { return product.HasBlocks() ? d.columns * Groups() : d.columns; }

  // What an algorithm remembers.
  emulatedCublasLtAlgorithm Algorithm(const uint32_t (&alignments)[4]) const {
    emulatedCublasLtAlgorithm algorithm = {};
    const int64_t types = a.type | d.type << 8 | product.of_a.mode << 16 | product.of_b.mode << 24;
    const int64_t all[] = {a.rows, a.columns, b.columns, a.stride, b.stride, d.stride, types};
    std::copy(std::begin(all), std::end(all), algorithm.data);
    algorithm.data[7] = *std::min_element(std::begin(alignments), std::end(alignments));
    return algorithm;
  }
};

float Load(const std::byte* matrix, int type, int64_t index) {
  if (type == kE4M3) return F8E4M3ToFloat(static_cast<uint8_t>(matrix[index]));
  uint16_t bits;
  std::memcpy(&bits, matrix + index * 2, sizeof(bits));
  return Bf16ToFloat(bits);
}

// Factors of parts of sums; nullptr: 1.
struct LoadedScales {
  const float* of_a;
  const float* of_b;

  float At(const Sizes& sizes, int64_t row, int64_t column, int64_t group) const {
    if (of_a == nullptr) return 1;
    if (!sizes.product.HasBlocks()) return of_a[row] * of_b[column];
    const int64_t stride = DivideUp(sizes.Groups(), 4) * 4;
    return of_a[row / kScaledColumns * stride + group] * of_b[group * sizes.d.columns + column];
  }
};

Status Multiply(const Sizes& sizes, const void* a, const void* b, void* d, void* workspace,
                TestWorker& worker) {
  const auto find = [&](const void* data, int64_t bytes) { return worker.Find(data, bytes); };
  const std::byte* const of_a = find(a, sizes.a.Bytes());
  const std::byte* const of_b = find(b, sizes.b.Bytes());
  std::byte* const of_d = find(d, sizes.d.Bytes());
  std::byte* const scratch = find(workspace, emulatedCublasLtWorkspaceBytes);
  if (of_a == nullptr || of_b == nullptr || of_d == nullptr || scratch == nullptr) {
    return Internal("a matrix of cuBLASLt, or its workspace, is not in the GPU's memory");
  }
  LoadedScales scales = {};
  if (sizes.a.type == kE4M3) {
    const auto find_scales = [&](const float* data, int64_t count) {
      return reinterpret_cast<const float*>(
          find(data, count * static_cast<int64_t>(sizeof(float))));
    };
    scales = {find_scales(sizes.product.of_a.data, sizes.ScalesOfA()),
              find_scales(sizes.product.of_b.data, sizes.ScalesOfB())};
    if (scales.of_a == nullptr || scales.of_b == nullptr) {
      return Internal("scales of cuBLASLt are not in the GPU's memory");
    }
  }
  std::memset(scratch, 0xff, emulatedCublasLtWorkspaceBytes);
  for (int64_t column = 0; column < sizes.d.columns; ++column) {
    for (int64_t row = 0; row < sizes.d.rows; ++row) {
      float sum = 0, part = 0;
      for (int64_t k = 0; k < sizes.a.rows; ++k) {
        part += Load(of_a, sizes.a.type, row * sizes.a.stride + k) *
                Load(of_b, sizes.b.type, column * sizes.b.stride + k);
        const bool ends_block = sizes.product.HasBlocks() && (k + 1) % kScaledColumns == 0;
        if (!ends_block && k + 1 < sizes.a.rows) continue;
        sum += part * scales.At(sizes, row, column, k / kScaledColumns);
        part = 0;
      }
      std::byte* const to = of_d + (column * sizes.d.stride + row) * sizes.d.ElementBytes();
      if (sizes.d.type == kF32) {
        std::memcpy(to, &sum, sizeof(sum));
      } else {
        const uint16_t bits = FloatToBf16(sum);
        std::memcpy(to, &bits, sizeof(bits));
      }
    }
  }
  return OkStatus();
}

Sizes SizesOf(const void* a, const void* b, const void* d, const void* product) {
  return {*static_cast<const Layout*>(a), *static_cast<const Layout*>(b),
          *static_cast<const Layout*>(d), *static_cast<const Product*>(product)};
}

}  // namespace
}  // namespace pagemill::gpu::emulation

using pagemill::gpu::emulation::IsAligned;
using pagemill::gpu::emulation::kComputeInF32;
using pagemill::gpu::emulation::kF32;
using pagemill::gpu::emulation::kFirstAlignment;
using pagemill::gpu::emulation::kInvalidValue;
using pagemill::gpu::emulation::kMostWorkspace;
using pagemill::gpu::emulation::kNotSupported;
using pagemill::gpu::emulation::kReductionInF32;
using pagemill::gpu::emulation::kReductions;
using pagemill::gpu::emulation::kScaleModeOfA;
using pagemill::gpu::emulation::kScaleModeOfB;
using pagemill::gpu::emulation::kScaleModeVersion;
using pagemill::gpu::emulation::kScalesOfA;
using pagemill::gpu::emulation::kScalesOfB;
using pagemill::gpu::emulation::kTransposesA;
using pagemill::gpu::emulation::Layout;
using pagemill::gpu::emulation::num_products;
using pagemill::gpu::emulation::num_searches;
using pagemill::gpu::emulation::Preference;
using pagemill::gpu::emulation::Product;
using pagemill::gpu::emulation::Set;
using pagemill::gpu::emulation::Sizes;
using pagemill::gpu::emulation::SizesOf;

int64_t emulatedCublasLtNumProducts() { return num_products; }
int64_t emulatedCublasLtNumSearches() { return num_searches; }
void emulatedCublasLtSetVersion(size_t version) { pagemill::gpu::emulation::version = version; }

size_t emulatedCublasLtGetVersion() { return pagemill::gpu::emulation::version; }

int emulatedCublasLtCreate(void** handle) {
  *handle = new int;
  return 0;
}

int emulatedCublasLtDestroy(void* handle) {
  delete static_cast<int*>(handle);
  return 0;
}

int emulatedCublasLtMatmulDescCreate(void** product, int compute_type, int scale_type) {
  *product = new Product{compute_type, scale_type};
  return 0;
}

int emulatedCublasLtMatmulDescDestroy(void* product) {
  delete static_cast<Product*>(product);
  return 0;
}

int emulatedCublasLtMatmulDescSetAttribute(void* product, int attribute, const void* value,
                                           size_t bytes) {
  auto& of = *static_cast<Product*>(product);
  if (attribute >= kScaleModeOfA && emulatedCublasLtGetVersion() < kScaleModeVersion) {
    return kInvalidValue;
  }
  switch (attribute) {
    case kTransposesA: return Set(&of.transposes_a, value, bytes);
    case kScalesOfA: return Set(&of.of_a.data, value, bytes);
    case kScalesOfB: return Set(&of.of_b.data, value, bytes);
    case kScaleModeOfA: return Set(&of.of_a.mode, value, bytes);
    case kScaleModeOfB: return Set(&of.of_b.mode, value, bytes);
    default: return kInvalidValue;
  }
}

int emulatedCublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns,
                                       int64_t stride) {
  *layout =
      new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), stride};
  return 0;
}

int emulatedCublasLtMatrixLayoutDestroy(void* layout) {
  delete static_cast<Layout*>(layout);
  return 0;
}

int emulatedCublasLtMatmulPreferenceCreate(void** preference) {
  *preference = new Preference;
  return 0;
}

int emulatedCublasLtMatmulPreferenceDestroy(void* preference) {
  delete static_cast<Preference*>(preference);
  return 0;
}

int emulatedCublasLtMatmulPreferenceSetAttribute(void* preference, int attribute,
                                                 const void* value, size_t bytes) {
  auto& of = *static_cast<Preference*>(preference);
  if (attribute == kMostWorkspace) return Set(&of.workspace_bytes, value, bytes);
  if (attribute == kReductions) return Set(&of.reductions, value, bytes);
  const int matrix = attribute - kFirstAlignment;
  if (matrix < 0 || matrix > 3) return kInvalidValue;
  return Set(&of.alignments[matrix], value, bytes);
}

int emulatedCublasLtMatmulAlgoGetHeuristic(void*, void* product, void* a, void* b, void* c,
                                           void* d, void* preference, int most,
                                           emulatedCublasLtHeuristic* found, int* num_found) {
  ++num_searches;
  *num_found = 0;
  const auto& of = *static_cast<Product*>(product);
  const auto& prefers = *static_cast<Preference*>(preference);
  const Sizes sizes = SizesOf(a, b, d, product);
  if (of.transposes_a != 1 || c != d || most < 1 || !sizes.Fit() || !sizes.ScalesFit()) {
    return kInvalidValue;
  }
  if (of.compute_type != kComputeInF32 || of.scale_type != kF32 ||
      prefers.reductions != kReductionInF32 ||
      prefers.workspace_bytes < emulatedCublasLtWorkspaceBytes || !sizes.HaveAlgorithm()) {
    return kNotSupported;
  }
  *found = {.algorithm = sizes.Algorithm(prefers.alignments),
            .workspace_bytes = emulatedCublasLtWorkspaceBytes,
            .state = 0,
            .waves = 1,
            .reserved = {}};
  *num_found = 1;
  return 0;
}

int emulatedCublasLtMatmul(void*, void* product, const void* alpha, const void* a, void* a_layout,
                           const void* b, void* b_layout, const void* beta, const void* c,
                           void* c_layout, void* d, void* d_layout,
                           const emulatedCublasLtAlgorithm* algorithm, void* workspace,
                           size_t workspace_bytes, emulatedStream_t stream) {
  const Sizes sizes = SizesOf(a_layout, b_layout, d_layout, product);
  const uint64_t alignment = algorithm->data[7];
  const auto expected = sizes.Algorithm({static_cast<uint32_t>(alignment), 256, 256, 256});
  if (*static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0 || c != d ||
      c_layout != d_layout || !sizes.ScalesFit() || !IsAligned(a, alignment) ||
      !IsAligned(b, alignment) || !IsAligned(d, alignment) || !IsAligned(workspace, 256) ||
      workspace_bytes < emulatedCublasLtWorkspaceBytes ||
      std::memcmp(algorithm, &expected, sizeof(expected)) != 0) {
    return kInvalidValue;
  }
  ++num_products;
  pagemill::gpu::emulation::EnqueueWork(
      stream, [=](pagemill::device::testing::TestWorker& worker) {
        return pagemill::gpu::emulation::Multiply(sizes, a, b, d, workspace, worker);
      });
  return 0;
}

const char* emulatedCublasLtGetStatusString(int error) {
  return error == kInvalidValue ? "an invalid value" : "not supported";
}
