// File: cuda/ops/linear/stage_ring.h
// The stages of shared memory that one part of a block fills while another one reads those before.
//
//   StageRing<4> ring;
//   for (...; ring.Next()) {
//     AwaitPhase(&shared.full[ring.stage], ring.parity);  // or empty, and the other parity
//     ...
//   }
#ifndef PAGEMILL_CUDA_OPS_LINEAR_STAGE_RING_H_
#define PAGEMILL_CUDA_OPS_LINEAR_STAGE_RING_H_

#include <cstdint>

#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// In their order, the first one behind the last again.
template <int kStages>
struct StageRing {
  int stage = 0;
  uint32_t parity = 0;  // of the phase of the stage's barriers

  PAGEMILL_DEVICE void Next() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_STAGE_RING_H_
