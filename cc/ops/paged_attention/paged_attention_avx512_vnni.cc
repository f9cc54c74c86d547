// The header that selects the instruction set must be included first.
// clang-format off
#include "cc/ops/vec/vec_avx512.h"
#include "cc/ops/paged_attention/attention_int8_inl.h"
// clang-format on

namespace pagemill::ops {

namespace {

template <typename Key, typename Value = Key>
constexpr AttentionKernel kByteKernel = {.load_queries = LoadByteQueries<Key>,
                                         .attend = AttendBytes<Key, Value>,
                                         .merge = Merge,
                                         .finish = Finish<Value>,
                                         .prefetches = true};

}  // namespace

const AttentionKernels kAttentionAvx512Vnni = {.f32 = {},
                                               .bf16 = {},
                                               .f8 = {},
                                               .int8 = kByteKernel<int8_t>,
                                               .int4 = kByteKernel<Int4Pair>,
                                               .k8v4 = kByteKernel<int8_t, Int4Pair>};

}  // namespace pagemill::ops
