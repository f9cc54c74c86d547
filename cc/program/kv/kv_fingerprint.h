// File: cc/program/kv/kv_fingerprint.h
// What the bytes of a KV page depend on besides tokens, as one number: the program, its weights,
// how KV is paged, and the byte order of the machine. KV that was saved under another fingerprint
// is of no use.
//
//   const Digest128 fingerprint = KvFingerprint(program, weights, GeometryOf(options));
//
// Where the weights lie does not count. Of each weight only 4 KiB at its start, middle and end are
// read, so that a large model costs milliseconds; whoever trains or merges a model changes more
// than that leaves out.
#ifndef PAGEMILL_CC_PROGRAM_KV_KV_FINGERPRINT_H_
#define PAGEMILL_CC_PROGRAM_KV_KV_FINGERPRINT_H_

#include "cc/base/xxh3.h"
#include "cc/program/operand_views.h"
#include "cc/program/program.h"
#include "cc/program/weights/weights.h"

namespace pagemill::program {

Digest128 KvFingerprint(const Program& program, const Weights& weights,
                        const CacheGeometry& geometry);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_KV_KV_FINGERPRINT_H_
