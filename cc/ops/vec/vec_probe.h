// File: cc/ops/vec/vec_probe.h
// The members of `Vec` and the functions of vec_math.h over arrays, compiled for each instruction
// set, so that one test (vec_test.cc) can compare them all with plain arithmetic. Test code only.
#ifndef PAGEMILL_CC_OPS_VEC_VEC_PROBE_H_
#define PAGEMILL_CC_OPS_VEC_VEC_PROBE_H_

#include <cstdint>

namespace pagemill::ops {

struct VecProbe {
  int32_t lanes;
  // y[i] = f(x[i]) for i < n; n is a multiple of lanes.
  void (*exp2)(const float* x, float* y, int64_t n);
  void (*exp)(const float* x, float* y, int64_t n);
  void (*tanh)(const float* x, float* y, int64_t n);
  void (*silu)(const float* x, float* y, int64_t n);
  void (*softplus)(const float* x, float* y, int64_t n);
  void (*gelu_erf)(const float* x, float* y, int64_t n);
  void (*gelu_tanh)(const float* x, float* y, int64_t n);
  // The first n (at most lanes) elements, through LoadN and StoreN; the others of y are not
  // touched.
  void (*copy_n)(const float* x, float* y, int n);
  void (*narrow_n)(const float* x, uint16_t* y, int n);
  void (*widen_n)(const uint16_t* x, float* y, int n);
  void (*narrow)(const float* x, uint16_t* y);  // lanes elements, through Load and Store
  void (*widen)(const uint16_t* x, float* y);
  void (*narrow_f8_n)(const float* x, uint8_t* y, int n);
  void (*widen_f8_n)(const uint8_t* x, float* y, int n);
  void (*narrow_f8)(const float* x, uint8_t* y);
  void (*widen_f8)(const uint8_t* x, float* y);
  void (*range)(const float* x, const float* y, float* z, int low, int high);
  void (*swap_pairs)(const float* x, float* y);
  void (*transpose)(float* square);  // [lanes, lanes]
  float (*sum)(const float* x);
  float (*maximum)(const float* x);
};

extern const VecProbe kVecProbePortable;
extern const VecProbe kVecProbeAvx2;
extern const VecProbe kVecProbeAvx512;

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_VEC_VEC_PROBE_H_
