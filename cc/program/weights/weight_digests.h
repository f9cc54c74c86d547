// File: cc/program/weights/weight_digests.h
// The identity of a program's weights: one digest per file, over every byte, so that packed copies
// and saved KV are never used with other weights.
//
//   const std::vector<Digest128> digests = WeightDigests(program, weights, memory, pool);
#ifndef PAGEMILL_CC_PROGRAM_WEIGHTS_WEIGHT_DIGESTS_H_
#define PAGEMILL_CC_PROGRAM_WEIGHTS_WEIGHT_DIGESTS_H_

#include <vector>

#include "cc/base/xxh3.h"
#include "cc/device/thread_pool.h"
#include "cc/program/program.h"
#include "cc/program/weights/file_digest.h"
#include "cc/program/weights/weights.h"

namespace pagemill::program {

// One per file of the program, in order; for constants, the digest of their bytes. Reads all files
// that `memory` does not have.
std::vector<Digest128> WeightDigests(const Program& program, const Weights& weights,
                                     const DigestMemory& memory, device::ThreadPool& pool);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_WEIGHT_DIGESTS_H_
