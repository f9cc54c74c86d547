// File: cc/program/kv/kv_fingerprint.h
// A digest of everything besides tokens that determines the bytes of a KV page: the program, its
// weights, its activation type, the KV layout, and the machine's byte order. KV saved under another
// fingerprint must not be used.
//
//   const Digest128 fingerprint = KvFingerprint(program, digests, plan.kv);
//
// Covers every byte of the weight files, through their digests (weight_digests.h), but not their
// paths.
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
