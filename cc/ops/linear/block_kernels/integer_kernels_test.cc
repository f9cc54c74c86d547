// The packed GEMMs of block formats with integer activations, slice by slice, against the
// definitions in packed_blocks.h and quantized_activations.h: integer sums are exact, so all give
// the same bits. Weights are random, or the largest that slices can hold with the largest |x|,
// which would overflow narrow sums.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/block_format/block_layout.h"
#include "cc/ops/block_format/nibble_tables.h"
#include "cc/ops/conformance.h"
#include "cc/ops/linear/packed_blocks.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/quantized/converted_blocks.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops::linear {
namespace {

using conformance::BitEqual;
using conformance::Random;
using conformance::TestTensor;

constexpr int64_t kYStride = 37;  // more than a slice's rows; the gap must not be written

// What slices can hold.
constexpr DType kSliceDTypes[] = {DType::kQ4_0,  DType::kQ4_1, DType::kQ5_0, DType::kQ8_0,
                                  DType::kQ4_K,  DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL,
                                  DType::kMxfp4, kNvfp4Blocks, DType::kQ3_K};

constexpr int32_t kMixed = 0;

struct Tested {
  std::string name;
  const PackedGemm* kernels;
  int32_t planes;  // of activations: 1 (8 bits), 2 (15 bits) or kMixed
};

// The GEMMs that this machine can run.
std::vector<Tested> IntegerGemms() {
  [[maybe_unused]] const device::Capabilities caps = device::DetectCapabilities();
  std::vector<Tested> sets;
#if defined(__x86_64__)
  if (caps.cpu.avx2) {
    sets.push_back({"avx2_int8", &kAvx2Int8Kernels, 1});
    sets.push_back({"avx2_int8_mixed", &kAvx2MixedKernels, kMixed});
  }
  if (caps.cpu.avx_vnni) {
    sets.push_back({"avx_vnni_int8", &kAvxVnniInt8Kernels, 1});
    sets.push_back({"avx_vnni_mixed", &kAvxVnniMixedKernels, kMixed});
  }
  if (caps.cpu.avx512_vnni) {
    sets.push_back({"avx512_vnni", &kAvx512VnniKernels, 1});
    sets.push_back({"avx512_vnni_int16", &kAvx512VnniInt16Kernels, 2});
    sets.push_back({"avx512_vnni_mixed", &kAvx512VnniMixedKernels, kMixed});
  }
#elif defined(__aarch64__)
  if (caps.cpu.asimd_dotprod) {
    sets.push_back({"asimd_dotprod", &kAsimdDotprodKernels, 1});
    sets.push_back({"asimd_dotprod_int16", &kAsimdDotprodInt16Kernels, 2});
  }
  if (caps.cpu.asimd_i8mm && caps.cpu.asimd_dotprod) {
    sets.push_back({"asimd_i8mm", &kAsimdI8mmKernels, 1});
    sets.push_back({"asimd_i8mm_int16", &kAsimdI8mmInt16Kernels, 2});
  }
#elif defined(__s390x__)
  if (caps.cpu.vxe) {
    sets.push_back({"vxe_int8", &kVxeInt8Kernels, 1});
    sets.push_back({"vxe_int16", &kVxeInt16Kernels, 2});
  }
#endif
  return sets;
}

// `bytes` between guards, 64-byte aligned, filled with ones (NaN) so that unwritten padding is
// detected.
TestTensor Aligned(int64_t bytes) {
  Random random(0);
  TestTensor memory(DType::kU8, {1, bytes});
  memory.FillUniform(random, 255, 255);
  return memory;
}

struct Operands {
  DType dtype;
  int64_t n;
  int64_t m;
  int64_t k;
  TestTensor x;
  TestTensor w;
  TestTensor bias;
  bool has_bias;
  bool has_largest_weights;
};

// Rows [m, k] as they are packed.
TestTensor RandomRows(DType dtype, int64_t m, int64_t k, Random& random) {
  if (dtype != kNvfp4Blocks) {
    TestTensor w(dtype, {m, k});
    w.FillUniform(random, -1, 1);
    return w;
  }
  TestTensor w(DType::kU8, {m, k / kNvfp4BlockElements * kNvfp4BlockBytes});
  w.FillUniform(random, 0, 255);
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t at = 0; at < w.view().shape[1]; at += kNvfp4BlockBytes) {
      uint8_t* const block = w.view().Row<uint8_t>(row) + at;
      for (int i : {0, 2}) StoreLe16(block + i, FloatToF16(random.Uniform(-0.1f, 0.1f)));
    }
  }
  return w;
}

Operands RandomOperands(DType dtype, int64_t n, int64_t m, Random& random) {
  const int64_t k = Info(dtype).block_elements == 256 ? 512 : 160;
  Operands o = {dtype,
                n,
                m,
                k,
                TestTensor(DType::kF32, {n, k}),
                RandomRows(dtype, m, k, random),
                TestTensor(DType::kF32, {m}),
                m % 2 == 1,
                false};
  std::vector<float> x(n * k);
  float largest = 2;
  for (size_t i = 0; i < x.size(); ++i) {
    if (i % kRecordElements == 0) largest = random.Int(0, 3) == 0 ? 7 : 2;
    x[i] = random.Uniform(-largest, largest);
  }
  o.x.Set(x);
  o.bias.FillUniform(random, -1, 1);
  return o;
}

// Sets all bits of the values of a slice; code 7 of MXFP4 and NVFP4 is the largest.
void MakeLargest(DType dtype, int64_t k, uint8_t* slice) {
  const PackedBlockLayout layout = PackedBlockLayoutOf(dtype);
  for (int64_t block = 0; block < k / kRecordElements; ++block) {
    if (block % kRecordsPerHead == 0) slice += layout.head_bytes;
    std::memset(slice, TableOf(dtype) == &kE2m1Doubled ? 0x77 : 0xff, layout.scales);
    slice += layout.record_bytes;
  }
}

// The packed slice of `o`.
TestTensor SliceOf(const PackedGemm& kernels, const Operands& o) {
  TestTensor slice = Aligned(kernels.slice_bytes(o.dtype, o.k));
  const TensorView rows = o.w.view();
  uint8_t* bytes = slice.view().Row<uint8_t>(0);
  kernels.pack({o.dtype, rows.Row<uint8_t>(0), rows.row_stride_bytes, o.k}, o.m, bytes);
  if (o.has_largest_weights) MakeLargest(o.dtype, o.k, bytes);
  return slice;
}

// [n, kYStride] floats, NaN beyond m.
std::vector<float> Product(const PackedGemm& kernels, const Operands& o) {
  const TestTensor slice = SliceOf(kernels, o);
  const TestTensor chunk = Aligned(kernels.chunk_bytes(o.dtype, o.n, o.k));
  kernels.prepare(o.dtype, {o.x.view().Row<float>(0), o.k, o.n, o.k}, chunk.view().Row<uint8_t>(0));
  std::vector<float> y(o.n * kYStride, std::nanf(""));
  kernels.multiply({o.dtype, slice.view().Row<uint8_t>(0), chunk.view().Row<uint8_t>(0),
                    o.has_bias ? o.bias.view().Row<float>(0) : nullptr, y.data(), kYStride, o.n,
                    o.m, o.k});
  EXPECT_TRUE(slice.GuardsIntact() && chunk.GuardsIntact());
  return y;
}

// A block of x.
struct Integers {
  int32_t values[kRecordElements];
  float scale;
};

float LargestOf(const float* x) {
  float top = 0;
  for (int64_t i = 0; i < kRecordElements; ++i) top = std::max(top, std::abs(x[i]));
  return top;
}

// Planes of the blocks of a row of a mixed chunk: compares the bits of each block's largest |x|
// with their mean.
std::vector<int32_t> PlanesOf(const float* row, int64_t k) {
  std::vector<int64_t> bits;
  int64_t sum = 0;
  for (int64_t i = 0; i < k; i += kRecordElements) {
    const float top = LargestOf(row + i);
    int32_t of_top;
    std::memcpy(&of_top, &top, sizeof(of_top));
    bits.push_back(of_top);
    sum += of_top;
  }
  std::vector<int32_t> planes;
  for (int64_t b : bits) {
    planes.push_back(b > sum / static_cast<int64_t>(bits.size()) + (1 << 23) ? 2 : 1);
  }
  return planes;
}

Integers Quantize(const float* x, int32_t planes) {
  const float largest = planes == 1 ? 127 : 127 * 128;
  const float top = LargestOf(x);
  Integers out;
  out.scale = top * (1 / largest);
  const float inverse = largest / top;
  for (int64_t i = 0; i < kRecordElements; ++i) {
    out.values[i] = static_cast<int32_t>(std::nearbyint(x[i] * inverse));
  }
  return out;
}

// Element i of row `row` of a record, without its zero point.
int32_t ValueAt(DType dtype, const uint8_t* record, int64_t row, int64_t i) {
  const int64_t half = row / kHalfSliceRows;
  const int64_t quad = i / 4;
  const int64_t lane = row % kHalfSliceRows * 4 + i % 4;
  const int32_t zero_point = PackedBlockLayoutOf(dtype).zero_point;
  if (dtype == DType::kQ8_0) return record[(half * kQuads + quad) * 64 + lane] - zero_point;
  if (dtype == DType::kQ3_K) {
    const int32_t pair = record[half * 128 + quad / 4 * 64 + lane] >> 2 * (quad % 4) & 3;
    return pair + ((record[256 + half * 64 + lane] >> quad & 1) << 2) - zero_point;
  }
  const int32_t both = record[(half * 4 + quad % 4) * 64 + lane];
  const int32_t nibble = quad < 4 ? both & 15 : both >> 4;
  if (const NibbleTable* table = TableOf(dtype)) return (*table)[nibble];
  const uint8_t* high = record + PackedBlockLayoutOf(dtype).high_bits;
  if (dtype == DType::kQ5_0 || dtype == DType::kQ5_K) {
    return nibble + ((high[half * 64 + lane] >> quad & 1) << 4) - zero_point;
  }
  if (dtype != DType::kQ6_K) return nibble - zero_point;
  const int32_t high_bits = high[half * 128 + quad / 4 * 64 + lane] >> 2 * (quad % 4) & 3;
  return nibble + (high_bits << 4) - zero_point;
}

// `sum` plus the product of a record with a block of x.
float AddRecord(DType dtype, const uint8_t* head, const uint8_t* record, int64_t row,
                const Integers& x, float sum) {
  const PackedBlockLayout layout = PackedBlockLayoutOf(dtype);
  int32_t sums[2] = {0, 0};
  int32_t of_x = 0;
  for (int64_t i = 0; i < kRecordElements; ++i) {
    sums[i / 16] += x.values[i] * ValueAt(dtype, record, row, i);
    of_x += x.values[i];
  }
  const auto f16_at = [&](const uint8_t* from) { return F16ToFloat(LoadLe16(from + 2 * row)); };
  const uint8_t* scales = record + layout.scales;
  const uint8_t* minima = record + layout.minima;
  const bool has_head = layout.head_bytes != 0;
  if (HasHalfScales(dtype)) {
    const int32_t total = sums[0] * static_cast<int8_t>(scales[row]) +
                          sums[1] * static_cast<int8_t>(scales[kSliceRows + row]);
    return std::fma(static_cast<float>(total), f16_at(head) * x.scale, sum);
  }
  if (dtype == kNvfp4Blocks) {
    const float first = static_cast<float>(sums[0]) * f16_at(scales);
    const float both = std::fma(static_cast<float>(sums[1]), f16_at(scales + 64), first);
    return std::fma(both, x.scale, sum);
  }
  const float scale = has_head                 ? f16_at(head) * scales[row]
                      : dtype == DType::kMxfp4 ? Bf16ToFloat(LoadLe16(scales + 2 * row))
                                               : f16_at(scales);
  sum = std::fma(static_cast<float>(sums[0] + sums[1]), scale * x.scale, sum);
  if (layout.minima == 0) return sum;
  const float minimum = has_head ? f16_at(head + 64) * minima[row] : f16_at(minima);
  return std::fma(minimum, x.scale * static_cast<float>(of_x), sum);
}

std::vector<float> Expected(const Tested& tested, const Operands& o) {
  const TestTensor slice = SliceOf(*tested.kernels, o);
  const PackedBlockLayout layout = PackedBlockLayoutOf(o.dtype);
  std::vector<float> y(o.n * kYStride, std::nanf(""));
  for (int64_t n = 0; n < o.n; ++n) {
    std::vector<float> sums(o.m, 0.0f);
    const uint8_t* head = slice.view().Row<uint8_t>(0);
    const uint8_t* record = head;
    const std::vector<int32_t> planes = PlanesOf(o.x.view().Row<float>(n), o.k);
    for (int64_t block = 0; block < o.k / kRecordElements; ++block) {
      if (block % kRecordsPerHead == 0) head = record, record += layout.head_bytes;
      const float* x = o.x.view().Row<float>(n) + block * kRecordElements;
      const Integers integers =
          Quantize(x, tested.planes == kMixed ? planes[block] : tested.planes);
      for (int64_t m = 0; m < o.m; ++m) {
        sums[m] = AddRecord(o.dtype, head, record, m, integers, sums[m]);
      }
      record += layout.record_bytes;
    }
    for (int64_t m = 0; m < o.m; ++m) {
      y[n * kYStride + m] = o.has_bias ? sums[m] + o.bias.view().Row<float>(0)[m] : sums[m];
    }
  }
  return y;
}

class IntegerKernelsTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    if (IntegerGemms().empty()) GTEST_SKIP() << "this CPU has none of them";
  }
};

TEST_P(IntegerKernelsTest, MatchTheirDefinition) {
  Random random(GetParam());
  for (DType dtype : kSliceDTypes) {
    for (int64_t m : {1, 16, 31, 32}) {
      const Operands o = RandomOperands(dtype, GetParam(), m, random);
      for (const Tested& tested : IntegerGemms()) {
        EXPECT_TRUE(BitEqual(Product(*tested.kernels, o), Expected(tested, o)))
            << tested.name << " " << Info(dtype).name << " m=" << m;
      }
    }
  }
}

TEST_P(IntegerKernelsTest, SumsOfTheLargestProductsAreExact) {
  Random random(GetParam());
  // For 15 bits: 127 * 128, and the integers with the largest upper and lower planes.
  for (int32_t integer : {16256, -16256, 16192, -16192, 16191, 63, -64}) {
    for (DType dtype : kSliceDTypes) {
      Operands o = RandomOperands(dtype, GetParam(), 32, random);
      o.has_largest_weights = true;
      std::vector<float> x(o.n * o.k, static_cast<float>(integer));
      for (size_t i = 0; i < x.size(); i += 32) x[i] = integer < 0 ? -16256 : 16256;
      o.x.Set(x);
      for (const Tested& tested : IntegerGemms()) {
        EXPECT_TRUE(BitEqual(Product(*tested.kernels, o), Expected(tested, o)))
            << tested.name << " " << Info(dtype).name << " x=" << integer;
      }
    }
  }
}

// Q3_K has the values, scales and order of sums of the Q6_K that it can be converted to.
TEST_P(IntegerKernelsTest, Q3KHasTheBitsOfItsConversion) {
  Random random(GetParam());
  Operands stored = RandomOperands(DType::kQ3_K, GetParam(), 31, random);
  Operands converted = {DType::kQ6_K,
                        stored.n,
                        stored.m,
                        stored.k,
                        TestTensor(DType::kF32, {stored.n, stored.k}),
                        TestTensor(DType::kQ6_K, {stored.m, stored.k}),
                        TestTensor(DType::kF32, {stored.m}),
                        stored.has_bias,
                        false};
  converted.x.Set(stored.x.ToFloat());
  converted.bias.Set(stored.bias.ToFloat());
  for (int64_t row = 0; row < stored.m; ++row) {
    ConvertRow(DType::kQ3_K, DType::kQ6_K, stored.w.view().Row<uint8_t>(row), stored.k,
               converted.w.view().Row<uint8_t>(row));
  }
  for (const Tested& tested : IntegerGemms()) {
    EXPECT_TRUE(BitEqual(Product(*tested.kernels, stored), Product(*tested.kernels, converted)))
        << tested.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, IntegerKernelsTest, ::testing::Values(1, 2, 3, 4, 5, 7, 32));

}  // namespace
}  // namespace pagemill::ops::linear
