// The header that selects the instruction set must be included first.
// clang-format off
#include "cc/ops/vec/vec_avx512.h"
#include "cc/ops/paged_attention/attention_dots_inl.h"
// clang-format on

namespace pagemill::ops {
namespace {

template <typename Element>
constexpr AttentionKernel kDotKernel = {.load_queries = LoadRoundedQueries,
                                        .attend = AttendDots<Element>,
                                        .merge = Merge,
                                        .finish = FinishDots,
                                        .prefetches = true};

}  // namespace

const AttentionKernels kAttentionAvx512Bf16 = {.f32 = {},
                                               .bf16 = kDotKernel<uint16_t>,
                                               .f8 = kDotKernel<uint8_t>,
                                               .int8 = {},
                                               .int4 = {},
                                               .k8v4 = {}};

}  // namespace pagemill::ops
