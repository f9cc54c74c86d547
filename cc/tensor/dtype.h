// File: cc/tensor/dtype.h
// Element types of tensors, the GGUF block formats included. Block formats store `block_elements`
// consecutive elements of a row in `block_bytes` bytes (little endian, as in the GGUF file); a row
// of K elements needs K % block_elements == 0.
#ifndef PAGEMILL_CC_TENSOR_DTYPE_H_
#define PAGEMILL_CC_TENSOR_DTYPE_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace pagemill {

enum class DType : uint8_t {
  kF32 = 0,
  kBF16 = 1,
  kF16 = 2,
  kI32 = 3,
  kI8 = 4,
  kU8 = 5,
  kF8E4M3 = 6,  // cc/tensor/float8.h
  kU4 = 7,      // 8 elements in 4 bytes, in an order that the format says (quantized.h)
  kK8V4 = 8,    // bytes of a KV cache: keys of int8, values of int4 (cc/ops/kv_page.h)
  kQ4_0 = 16,   // 32 elements: f16 scale, 16 bytes of nibbles
  kQ4_1 = 17,   // 32 elements: f16 scale, f16 minimum, 16 bytes
  kQ5_0 = 18,   // 32 elements: f16 scale, 4 bytes of high bits, 16 bytes
  kQ8_0 = 19,   // 32 elements: f16 scale, 32 int8
  kQ4_K = 20,   // 256 elements, 144 bytes
  kQ5_K = 21,   // 256 elements, 176 bytes
  kQ6_K = 22,   // 256 elements, 210 bytes
  // Block formats that are converted when a program is bound (IsConvertedFormat).
  kQ5_1 = 32,     // 32 elements, 24 bytes
  kQ2_K = 33,     // 256 elements, 84 bytes
  kQ3_K = 34,     // 256 elements, 110 bytes
  kIQ4_NL = 35,   // 32 elements, 18 bytes
  kIQ4_XS = 36,   // 256 elements, 136 bytes
  kMxfp4 = 37,    // 32 elements, 17 bytes
  kTQ1_0 = 38,    // 256 elements, 54 bytes
  kTQ2_0 = 39,    // 256 elements, 66 bytes
  kIQ1_S = 40,    // 256 elements, 50 bytes
  kIQ1_M = 41,    // 256 elements, 56 bytes
  kIQ2_XXS = 42,  // 256 elements, 66 bytes
  kIQ2_XS = 43,   // 256 elements, 74 bytes
  kIQ2_S = 44,    // 256 elements, 82 bytes
  kIQ3_XXS = 45,  // 256 elements, 98 bytes
  kIQ3_S = 46,    // 256 elements, 110 bytes
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;  // as written in program text: "f32", "bf16", "q4_1", ...
  int32_t block_elements;
  int32_t block_bytes;
};

const DTypeInfo& Info(DType dtype);
std::optional<DType> ParseDType(std::string_view name);

inline bool IsBlockFormat(DType dtype) { return static_cast<uint8_t>(dtype) >= 16; }

// Block formats that no kernel multiplies: cc/ops/quantized/converted_blocks.h reads them.
inline bool IsConvertedFormat(DType dtype) { return static_cast<uint8_t>(dtype) >= 32; }

// Bytes of a row of `elements`; `elements` is a multiple of the block size.
inline int64_t RowBytes(DType dtype, int64_t elements) {
  const DTypeInfo& info = Info(dtype);
  return elements / info.block_elements * info.block_bytes;
}

}  // namespace pagemill

#endif  // PAGEMILL_CC_TENSOR_DTYPE_H_
