// File: cc/program/testing/transposed_weights.h
// A program with weights whose rows lie in columns of what is stored: two matrices, t and u, and a
// stack of both. Test code only.
#ifndef PAGEMILL_CC_PROGRAM_TESTING_TRANSPOSED_WEIGHTS_H_
#define PAGEMILL_CC_PROGRAM_TESTING_TRANSPOSED_WEIGHTS_H_

#include <array>

namespace pagemill::program::testing {

// t: columns 1 and 2, and u: columns 0 and 1, of rows of 4 floats from 1 to 12. Ops read t, t and
// the stack.
inline constexpr char kTransposedWeights[] = R"(pagemill-program 3
file 0 @
weight t f32 2,3 0 4 4 16
weight u f32 2,3 0 0 4 16
stack both f32 2,2,3 t,u
input token_ids i32 tokens
value x f32 tokens,3
value y f32 tokens,3
value out f32 logits_rows,3
op first token_ids,t -> x
op second x,t -> y
op third y,both -> out
output logits out
constants 48
0000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041
)";

// The elements of the stack: t's, then u's.
inline constexpr std::array<float, 12> kTransposedValues = {2, 6, 10, 3, 7, 11,
                                                            1, 5, 9,  2, 6, 10};

}  // namespace pagemill::program::testing

#endif  // PAGEMILL_CC_PROGRAM_TESTING_TRANSPOSED_WEIGHTS_H_
