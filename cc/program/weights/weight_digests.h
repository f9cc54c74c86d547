// File: cc/program/weights/weight_digests.h
// The identity of a program's weights: one digest per file, over every byte, so that packed copies
// and saved KV are never used with other weights.
//
//   const std::vector<Digest128> digests = WeightDigests(program, weights.files(), memory, pool);
#ifndef PAGEMILL_CC_PROGRAM_WEIGHTS_WEIGHT_DIGESTS_H_
#define PAGEMILL_CC_PROGRAM_WEIGHTS_WEIGHT_DIGESTS_H_

#include <span>
#include <vector>

#include "cc/base/xxh3.h"
#include "cc/device/thread_pool.h"
#include "cc/program/program.h"
#include "cc/program/weights/file_digest.h"
#include "cc/program/weights/mapped_file.h"

namespace pagemill::program {

// One for each of the program's files, in their order; that of the constants is of their bytes.
// `files`: Weights::files(). Reads all of them that `memory` does not know.
std::vector<Digest128> WeightDigests(const Program& program, std::span<const MappedFile> files,
                                     const DigestMemory& memory, device::ThreadPool& pool);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_WEIGHT_DIGESTS_H_
