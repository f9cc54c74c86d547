// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_portable.h"
#include "cc/ops/state_space_scan/scan_chunk_inl.h"
// clang-format on

namespace pagemill::ops {

void ScanChunkPortable(const ScanChunk& chunk) { Scan(chunk); }

}  // namespace pagemill::ops
