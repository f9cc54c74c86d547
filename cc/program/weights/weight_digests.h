// File: cc/program/weights/weight_digests.h
// What a program's weights are, as one digest per file: of every byte of it, so that neither a
// packed copy nor saved KV is taken for that of other weights.
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

// One for each of the program's files, in their order; that of the constants is of their bytes.
// Reads all files that `memory` does not know.
std::vector<Digest128> WeightDigests(const Program& program, const Weights& weights,
                                     const DigestMemory& memory, device::ThreadPool& pool);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_WEIGHT_DIGESTS_H_
