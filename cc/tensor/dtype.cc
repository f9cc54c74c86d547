#include "cc/tensor/dtype.h"

#include <array>

#include "cc/base/status.h"

namespace pagemill {
namespace {

constexpr std::array<DTypeInfo, 31> kInfos = {{
    {DType::kF32, "f32", 1, 4},
    {DType::kBF16, "bf16", 1, 2},
    {DType::kF16, "f16", 1, 2},
    {DType::kI32, "i32", 1, 4},
    {DType::kI8, "i8", 1, 1},
    {DType::kU8, "u8", 1, 1},
    {DType::kF8E4M3, "f8_e4m3", 1, 1},
    {DType::kU4, "u4", 8, 4},
    {DType::kK8V4, "k8v4", 1, 1},
    {DType::kQ4_0, "q4_0", 32, 18},
    {DType::kQ4_1, "q4_1", 32, 20},
    {DType::kQ5_0, "q5_0", 32, 22},
    {DType::kQ8_0, "q8_0", 32, 34},
    {DType::kQ4_K, "q4_k", 256, 144},
    {DType::kQ5_K, "q5_k", 256, 176},
    {DType::kQ6_K, "q6_k", 256, 210},
    {DType::kQ5_1, "q5_1", 32, 24},
    {DType::kQ2_K, "q2_k", 256, 84},
    {DType::kQ3_K, "q3_k", 256, 110},
    {DType::kIQ4_NL, "iq4_nl", 32, 18},
    {DType::kIQ4_XS, "iq4_xs", 256, 136},
    {DType::kMxfp4, "mxfp4", 32, 17},
    {DType::kTQ1_0, "tq1_0", 256, 54},
    {DType::kTQ2_0, "tq2_0", 256, 66},
    {DType::kIQ1_S, "iq1_s", 256, 50},
    {DType::kIQ1_M, "iq1_m", 256, 56},
    {DType::kIQ2_XXS, "iq2_xxs", 256, 66},
    {DType::kIQ2_XS, "iq2_xs", 256, 74},
    {DType::kIQ2_S, "iq2_s", 256, 82},
    {DType::kIQ3_XXS, "iq3_xxs", 256, 98},
    {DType::kIQ3_S, "iq3_s", 256, 110},
}};

}  // namespace

const DTypeInfo& Info(DType dtype) {
  for (const DTypeInfo& info : kInfos) {
    if (info.dtype == dtype) return info;
  }
  CheckFailed(__FILE__, __LINE__, "DType without a row in kInfos");
}

std::optional<DType> ParseDType(std::string_view name) {
  for (const DTypeInfo& info : kInfos) {
    if (info.name == name) return info.dtype;
  }
  return std::nullopt;
}

}  // namespace pagemill
