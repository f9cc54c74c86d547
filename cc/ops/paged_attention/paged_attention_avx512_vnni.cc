// The header that selects the instruction set must be included first.
// clang-format off
#include "cc/ops/vec/vec_avx512.h"
#include "cc/ops/paged_attention/attention_int8_inl.h"
// clang-format on

namespace pagemill::ops {

const AttentionKernels kAttentionAvx512Vnni = {.f32 = {},
                                               .bf16 = {},
                                               .f8 = {},
                                               .int8 = {.load_queries = LoadByteQueries,
                                                        .attend = AttendBytes,
                                                        .merge = Merge,
                                                        .finish = Finish,
                                                        .prefetches = true}};

}  // namespace pagemill::ops
