// File: cc/ops/vec/vec_portable.h
// `Vec`: a register of floats, over which kernels are written once and compiled for each
// instruction set. This one uses the compilers' vector extension with 4 floats, which compiles to
// SSE2 on the x86-64 baseline, ASIMD on aarch64 and the vector facility on s390x.
//
// A kernel is not a template: it uses `Vec` in an anonymous namespace, and its source includes
// vec.h, which includes one of vec_avx512.h, vec_avx2.h and vec_portable.h. `Vec` itself is in an
// anonymous namespace too, so that the linker never merges code of different instruction sets.
//
// Members, for n in [0, kLanes]:
//   Load(p), Store(p, v)       kLanes elements; float, or uint16_t holding bf16 (stores round to
//                              nearest even), uint8_t holding f8_e4m3 (cc/tensor/float8.h), or,
//                              loads only, int8_t; no alignment needed
//   LoadN(p, n), StoreN        the first n only: others read as 0, and are not touched
//   Fma(a, b, c)               a b + c, rounded once if the CPU supports it
//   Max(a, b), Min(a, b)       b if either is NaN
//   Less(a, b, x, y)           a < b ? x : y, lane by lane
//   Range(x, y, low, high)     x in lanes [low, high), y elsewhere
//   Round(a)                   nearest integer, |a| < 2^22
//   ScaleByPowerOf2(a, n)      a 2^n for integral n in [-126, 128]
//   First(a)                   lane 0
//   SwapPairs(a)               lanes 1, 0, 3, 2, 5, 4, ...
//   Transpose(r)               of kLanes registers, in place
//   Sum(a), Maximum(a)         over the lanes, in a fixed order
#ifndef PAGEMILL_CC_OPS_VEC_VEC_PORTABLE_H_
#define PAGEMILL_CC_OPS_VEC_VEC_PORTABLE_H_

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <cstdint>
#include <cstring>

#include "cc/tensor/float8.h"

namespace pagemill::ops {
namespace {

struct Vec {
 private:
  using I = int32_t __attribute__((vector_size(16)));
  using U = uint32_t __attribute__((vector_size(16)));
  using Half = uint16_t __attribute__((vector_size(8)));
  using Bytes = int8_t __attribute__((vector_size(4)));
  using Codes = uint8_t __attribute__((vector_size(4)));

 public:
  using F = float __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
#if defined(__x86_64__)
  static constexpr int kRegisters = 16;
#else
  static constexpr int kRegisters = 32;
#endif

  static F Zero() { return F{0, 0, 0, 0}; }
  static F Set(float v) { return F{v, v, v, v}; }
  static F Load(const float* p) {
    F v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  static F LoadN(const float* p, int n) {
    F v = Zero();
    for (int i = 0; i < kLanes && i < n; ++i) v[i] = p[i];
    return v;
  }
  static void Store(float* p, F v) { std::memcpy(p, &v, sizeof(v)); }
  static void StoreN(float* p, F v, int n) {
    for (int i = 0; i < kLanes && i < n; ++i) p[i] = v[i];
  }

  static F Load(const uint16_t* p) {
    Half v;
    std::memcpy(&v, p, sizeof(v));
    return Widen(v);
  }
  static F LoadN(const uint16_t* p, int n) {
    Half v = {};
    for (int i = 0; i < kLanes && i < n; ++i) v[i] = p[i];
    return Widen(v);
  }
  static F Load(const int8_t* p) {
    Bytes v;
    std::memcpy(&v, p, sizeof(v));
    return __builtin_convertvector(v, F);
  }
  static F LoadN(const int8_t* p, int n) {
    Bytes v = {};
    for (int i = 0; i < kLanes && i < n; ++i) v[i] = p[i];
    return __builtin_convertvector(v, F);
  }
  static F Load(const uint8_t* p) {
    Codes v;
    std::memcpy(&v, p, sizeof(v));
    return WidenF8(__builtin_convertvector(v, U));
  }
  static F LoadN(const uint8_t* p, int n) {
    U v = {};
    for (int i = 0; i < kLanes && i < n; ++i) v[i] = p[i];
    return WidenF8(v);
  }
  static void Store(uint8_t* p, F v) { StoreN(p, v, kLanes); }
  static void StoreN(uint8_t* p, F v, int n) {
    for (int i = 0; i < kLanes && i < n; ++i) p[i] = FloatToF8E4M3(v[i]);
  }
  static void Store(uint16_t* p, F v) {
    const Half h = Narrow(v);
    std::memcpy(p, &h, sizeof(h));
  }
  static void StoreN(uint16_t* p, F v, int n) {
    const Half h = Narrow(v);
    for (int i = 0; i < kLanes && i < n; ++i) p[i] = h[i];
  }

  static F Add(F a, F b) { return a + b; }
  static F Sub(F a, F b) { return a - b; }
  static F Mul(F a, F b) { return a * b; }
  static F Div(F a, F b) { return a / b; }
  // Explicit if there is an instruction: a compiler that fuses a * b + c itself may choose
  // differently in different places, and results would not be reproducible.
  static F Fma(F a, F b, F c) {
#if defined(__aarch64__)
    return (F)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#elif defined(__s390x__) && defined(__VX__)
    return __builtin_s390_vfmasb(a, b, c);
#else
    return a * b + c;
#endif
  }
  static F Max(F a, F b) { return a > b ? a : b; }
  static F Min(F a, F b) { return a < b ? a : b; }
  static F Abs(F a) { return (F)((I)a & 0x7fffffff); }
  static F CopySign(F magnitude, F sign) {
    const I bit = (I)Set(-0.0f);
    return (F)(((I)magnitude & ~bit) | ((I)sign & bit));
  }
  static F Less(F a, F b, F then, F otherwise) { return a < b ? then : otherwise; }
  static F Range(F inside, F outside, int low, int high) {
    const I lane = {0, 1, 2, 3};
    return (lane >= low) & (lane < high) ? inside : outside;
  }
  // The sum with 1.5 * 2^23 has no bits for a fraction.
  static F Round(F a) { return (a + 12582912.0f) - 12582912.0f; }
  static F ScaleByPowerOf2(F a, F n) {
    const I exponent = __builtin_convertvector(n, I) + 127;
    return a * (F)(exponent << 23);
  }

  static float First(F a) { return a[0]; }
  static F SwapPairs(F a) { return __builtin_shuffle(a, I{1, 0, 3, 2}); }

  static void Transpose(F* r) {
    const F a = __builtin_shuffle(r[0], r[1], I{0, 4, 1, 5});
    const F b = __builtin_shuffle(r[0], r[1], I{2, 6, 3, 7});
    const F c = __builtin_shuffle(r[2], r[3], I{0, 4, 1, 5});
    const F d = __builtin_shuffle(r[2], r[3], I{2, 6, 3, 7});
    r[0] = __builtin_shuffle(a, c, I{0, 1, 4, 5});
    r[1] = __builtin_shuffle(a, c, I{2, 3, 6, 7});
    r[2] = __builtin_shuffle(b, d, I{0, 1, 4, 5});
    r[3] = __builtin_shuffle(b, d, I{2, 3, 6, 7});
  }

  static float Sum(F a) { return (a[0] + a[2]) + (a[1] + a[3]); }
  static float Maximum(F a) {
    const float even = a[0] > a[2] ? a[0] : a[2];
    const float odd = a[1] > a[3] ? a[1] : a[3];
    return even > odd ? even : odd;
  }

 private:
  // Avoids subnormal floats, which some CPUs multiply slowly.
  static F WidenF8(U codes) {
    const U magnitude = codes & 0x7f;
    const F normal = (F)((magnitude << 20) + (120u << 23));
    const F subnormal = __builtin_convertvector((I)magnitude, F) * 0x1p-9f;
    const F finite = magnitude < 8 ? subnormal : normal;
    const U nan = magnitude == 0x7f ? U{} + 0x7fc00000 : U{};
    return (F)((U)finite | (codes & 0x80) << 24 | nan);
  }
  static F Widen(Half v) { return (F)(__builtin_convertvector(v, U) << 16); }
  // Rounds to nearest even; a NaN stays NaN (its quiet bit is set).
  static Half Narrow(F v) {
    const U bits = (U)v;
    const U up = bits + 0x7fff + ((bits >> 16) & 1);
    const U rounded = (v == v) ? up : (bits | 0x400000);
    return __builtin_convertvector(rounded >> 16, Half);
  }
};

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_VEC_VEC_PORTABLE_H_
