// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_avx2.h"
#include "cc/ops/state_space_scan/scan_chunk_inl.h"
// clang-format on

namespace pagemill::ops {

void ScanChunkAvx2(const ScanChunk& chunk) { Scan(chunk); }

}  // namespace pagemill::ops
