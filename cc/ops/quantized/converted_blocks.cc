#include "cc/ops/quantized/converted_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "cc/ops/block_format/block_layout.h"
#include "cc/ops/quantized/internal/block_writers.h"
#include "cc/ops/quantized/internal/integer_block.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops {
namespace {

using internal::IntegerBlock;

template <int offset>
float F16At(const uint8_t* block) {
  return internal::LoadF16(block + offset);
}

// d in the unit of integers that are 4 or 8 times as large.
template <int divisor>
float F16Over(const uint8_t* block) {
  return internal::LoadF16(block) / divisor;
}

// The f16 of which each of four words has a nibble, in its highest bits, of integers in eighths.
float ScaleOfIq1M(const uint8_t* block) {
  int bits = 0;
  for (int i = 0; i < 4; ++i) bits |= LoadLe16(block + 48 + 2 * i) >> 12 << (4 * i);
  return F16ToFloat(static_cast<uint16_t>(bits)) / 8;
}

// Half of 2^(s - 127): integers are doubled.
float ScaleOfMxfp4(const uint8_t* block) { return std::ldexp(1.0f, block[0] - 128); }

enum class Writer { kQ4_0, kQ8_0, kRoundedQ8_0, kOddQ4K, kQ6K, kRoundedQ6K };

// How a format is read, and how it is written as another one.
struct Conversion {
  DType dtype;
  float (*scale)(const uint8_t* block);  // d
  void (*load)(const uint8_t* block, IntegerBlock* out);
  Writer writer;
  float step = 1;         // of the writer
  int largest_scale = 0;  // what is written is at most this times |d|; 0: it always fits
};

// Steps are those of the least squared error over the coordinates of a table's points.
constexpr Conversion kConversions[] = {
    {DType::kTQ1_0, F16At<52>, internal::LoadTq1, Writer::kQ4_0},
    {DType::kTQ2_0, F16At<64>, internal::LoadTq2, Writer::kQ4_0},
    {DType::kIQ1_S, F16Over<8>, internal::LoadIq1S, Writer::kQ4_0, 1.138f, 18},
    {DType::kIQ1_M, ScaleOfIq1M, internal::LoadIq1M, Writer::kQ6K},
    {DType::kIQ2_XXS, F16Over<8>, internal::LoadIq2Xxs, Writer::kQ4_0, 8.469f, 263},
    {DType::kIQ2_XS, F16Over<8>, internal::LoadIq2Xs, Writer::kQ6K, 1.584f, 2},
    {DType::kIQ2_S, F16Over<8>, internal::LoadIq2S, Writer::kQ6K, 1.584f, 2},
    {DType::kIQ3_XXS, F16Over<4>, internal::LoadIq3Xxs, Writer::kOddQ4K, 4.043f, 61},
    {DType::kIQ3_S, F16At<0>, internal::LoadIq3S, Writer::kOddQ4K, 1, 15},
    {DType::kIQ4_NL, F16At<0>, internal::LoadIq4Nl, Writer::kQ8_0},
    {DType::kIQ4_XS, F16At<0>, internal::LoadIq4Xs, Writer::kQ8_0, 1, 32},
    {DType::kMxfp4, ScaleOfMxfp4, internal::LoadMxfp4, Writer::kQ8_0, 1, 1},
    {DType::kQ2_K, F16At<80>, internal::LoadQ2K, Writer::kRoundedQ6K},
    {DType::kQ3_K, F16At<108>, internal::LoadQ3K, Writer::kQ6K},
    {DType::kQ5_1, F16At<0>, internal::LoadQ5_1, Writer::kRoundedQ8_0},
};

const Conversion& ConversionOf(DType dtype) {
  for (const Conversion& conversion : kConversions) {
    if (conversion.dtype == dtype) return conversion;
  }
  CheckFailed(__FILE__, __LINE__, "not a format that is converted");
}

// visit(block, index of its first element).
template <class Visit>
void ForEachBlock(const Conversion& conversion, const uint8_t* row, int64_t elements,
                  const Visit& visit) {
  const DTypeInfo& info = Info(conversion.dtype);
  IntegerBlock block;
  for (int64_t i = 0; i < elements; i += info.block_elements, row += info.block_bytes) {
    block.d = conversion.scale(row);
    conversion.load(row, &block);
    visit(block, i);
  }
}

void Write(const Conversion& conversion, const IntegerBlock& block, int64_t elements,
           uint8_t* out) {
  switch (conversion.writer) {
    case Writer::kQ4_0:
      return internal::WriteQ4_0(block, elements, conversion.step, out);
    case Writer::kQ8_0:
      return internal::WriteQ8_0(block, elements, out);
    case Writer::kRoundedQ8_0:
      return internal::WriteRoundedQ8_0(block, elements, out);
    case Writer::kOddQ4K:
      return internal::WriteOddQ4K(block, conversion.step, out);
    case Writer::kQ6K:
      return internal::WriteQ6K(block, conversion.step, out);
    case Writer::kRoundedQ6K:
      return internal::WriteRoundedQ6K(block, out);
  }
}

// Blocks of iq4_xs as eight of iq4_nl each, which have the same codes.
void SplitIq4Xs(const uint8_t* row, int64_t elements, uint8_t* out) {
  constexpr int64_t kCodesAt = 8, kCodeBytes = 16, kElements = 32;
  const auto split = [&](const IntegerBlock& block, int64_t first) {
    const uint8_t* codes = row + RowBytes(DType::kIQ4_XS, first) + kCodesAt;
    for (int64_t i = 0; i < internal::kBlockElements; i += kElements, codes += kCodeBytes) {
      StoreLe16(out, FloatToF16(block.Scale(i)));
      std::memcpy(out + 2, codes, kCodeBytes);
      out += 2 + kCodeBytes;
    }
  };
  ForEachBlock(ConversionOf(DType::kIQ4_XS), row, elements, split);
}

// The largest scale that a format holds. A byte of 255 is no scale of mxfp4.
float LargestScale(DType dtype) { return dtype == DType::kMxfp4 ? 0x1p126f : 65504.0f; }

}  // namespace

DType SliceDType(DType dtype) {
  switch (dtype) {
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
      return DType::kIQ4_NL;
    case DType::kMxfp4:
    case DType::kQ3_K:
      return dtype;
    default:
      return ConvertedDType(dtype);
  }
}

DType ConvertedDType(DType dtype) {
  switch (ConversionOf(dtype).writer) {
    case Writer::kQ4_0:
      return DType::kQ4_0;
    case Writer::kQ8_0:
    case Writer::kRoundedQ8_0:
      return DType::kQ8_0;
    case Writer::kOddQ4K:
      return DType::kQ4_K;
    case Writer::kQ6K:
    case Writer::kRoundedQ6K:
      return DType::kQ6_K;
  }
  CheckFailed(__FILE__, __LINE__, "a writer without a format");
}

void DequantizeConverted(DType dtype, const uint8_t* row, int64_t elements, float* out) {
  const int64_t size = Info(dtype).block_elements;
  ForEachBlock(ConversionOf(dtype), row, elements, [&](const IntegerBlock& block, int64_t first) {
    for (int64_t i = 0; i < size; ++i) out[first + i] = block.Value(i);
  });
}

void ConvertRow(DType dtype, DType to, const uint8_t* row, int64_t elements, uint8_t* out) {
  if (to == dtype) {
    std::memcpy(out, row, static_cast<size_t>(RowBytes(dtype, elements)));
    return;
  }
  if (to == DType::kIQ4_NL) return SplitIq4Xs(row, elements, out);
  const Conversion& conversion = ConversionOf(dtype);
  const int64_t size = Info(dtype).block_elements;
  ForEachBlock(conversion, row, elements, [&](const IntegerBlock& block, int64_t first) {
    Write(conversion, block, size, out + RowBytes(to, first));
  });
}

Status CheckConvertible(DType dtype, DType to, const uint8_t* row, int64_t elements) {
  const Conversion& conversion = ConversionOf(dtype);
  if (conversion.largest_scale == 0) return OkStatus();
  const DTypeInfo& info = Info(dtype);
  float largest = 0;
  for (int64_t i = 0; i < elements; i += info.block_elements, row += info.block_bytes) {
    largest = std::max(largest, std::fabs(conversion.scale(row)));
  }
  const auto factor = static_cast<float>(conversion.largest_scale);
  const float limit = LargestScale(to);
  if (largest * factor <= limit) return OkStatus();
  std::ostringstream message;
  message << "has scales up to " << largest * factor << ", which " << Info(to).name
          << " does not hold: up to " << limit << " work";
  return Unimplemented(message.str());
}

}  // namespace pagemill::ops
