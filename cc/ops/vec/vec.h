// File: cc/ops/vec/vec.h
// `Vec` of the instruction set that a source of vec_cc_library() (tools/bazel/cc.bzl) is compiled
// for: the same source makes the portable, the AVX2 and the AVX-512 function.
//
//   #include "cc/ops/rms_norm/rms_norm_row.h"   // declares RmsNormRowPortable, ...Avx2, ...Avx512
//   #include "cc/ops/vec/vec.h"
//
//   void PAGEMILL_VEC_NAME(RmsNormRow)(const RmsNormRow& row) { ... Vec::Load(row.x) ... }
//
// All other definitions of such a source are in an anonymous namespace, and it includes no header
// with code that other files may share: the linker could keep the copy with wide instructions.
#ifndef PAGEMILL_CC_OPS_VEC_VEC_H_
#define PAGEMILL_CC_OPS_VEC_VEC_H_

#if defined(PAGEMILL_VEC_AVX512)
#include "cc/ops/vec/vec_avx512.h"
#define PAGEMILL_VEC_NAME(name) name##Avx512
#define PAGEMILL_VEC_ISA "avx512"
#elif defined(PAGEMILL_VEC_AVX2)
#include "cc/ops/vec/vec_avx2.h"
#define PAGEMILL_VEC_NAME(name) name##Avx2
#define PAGEMILL_VEC_ISA "avx2"
#elif defined(PAGEMILL_VEC_PORTABLE)
#include "cc/ops/vec/vec_portable.h"
#define PAGEMILL_VEC_NAME(name) name##Portable
#define PAGEMILL_VEC_ISA "portable"
#else
#error "only sources of vec_cc_library() include this header"
#endif

#endif  // PAGEMILL_CC_OPS_VEC_VEC_H_
