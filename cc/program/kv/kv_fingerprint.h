// File: cc/program/kv/kv_fingerprint.h
// What the bytes of a KV page depend on besides tokens, as one number: the program, its weights,
// the type of its activations, how KV is paged, and the byte order of the machine. KV that was
// saved under another fingerprint is of no use.
//
//   const Digest128 fingerprint = KvFingerprint(program, digests, plan.kv);
//
// Every byte of the files of weights counts, by their digests (weight_digests.h); their paths do
// not.
#ifndef PAGEMILL_CC_PROGRAM_KV_KV_FINGERPRINT_H_
#define PAGEMILL_CC_PROGRAM_KV_KV_FINGERPRINT_H_

#include <span>

#include "cc/base/xxh3.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/program.h"

namespace pagemill::program {

// `file_digests`: WeightDigests().
Digest128 KvFingerprint(const Program& program, std::span<const Digest128> file_digests,
                        const KvLayout& layout);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_KV_KV_FINGERPRINT_H_
