// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_avx512.h"
#include "cc/ops/state_space_scan/scan_chunk_inl.h"
// clang-format on

namespace pagemill::ops {

void ScanChunkAvx512(const ScanChunk& chunk) { Scan(chunk); }

}  // namespace pagemill::ops
