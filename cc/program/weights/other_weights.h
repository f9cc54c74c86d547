// File: cc/program/weights/other_weights.h
// Is a program another one with other weights? Then what was chosen and planned for one (kernels,
// memory, KV layout) holds for the other.
#ifndef PAGEMILL_CC_PROGRAM_WEIGHTS_OTHER_WEIGHTS_H_
#define PAGEMILL_CC_PROGRAM_WEIGHTS_OTHER_WEIGHTS_H_

#include "cc/base/status.h"
#include "cc/program/program.h"

namespace pagemill::program {

// OK if `other` differs from `loaded` only in files, in where weights lie in them, and in
// constants. kInvalidArgument names the first weight or op that differs. Both have the same type of
// activations.
Status CheckOtherWeights(const Program& loaded, const Program& other);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_OTHER_WEIGHTS_H_
