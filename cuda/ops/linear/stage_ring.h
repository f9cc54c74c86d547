// File: cuda/ops/linear/stage_ring.h
// The stages of shared memory that one part of a block fills while another one reads those before.
//
//   StageRing<4> ring;
//   for (...; ring.Next()) {
//     AwaitPhase(&shared.full[ring.stage], ring.parity);  // or empty, and the other parity
//     ...
//     Release(&shared.empty[ring.stage]);
//   }
#ifndef PAGEMILL_CUDA_OPS_LINEAR_STAGE_RING_H_
#define PAGEMILL_CUDA_OPS_LINEAR_STAGE_RING_H_

#include <cstdint>

#include "cuda/gpu_vendor.h"
#include "cuda/gpu_wgmma.h"

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

// By those that read: a stage is released when all lanes of a warp have read it.
PAGEMILL_DEVICE void Release(uint64_t* empty) {
  SyncWarp(AllLanes());
  if (Lane() == 0) Arrive(empty);
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_STAGE_RING_H_
