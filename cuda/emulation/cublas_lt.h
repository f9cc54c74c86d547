// File: cuda/emulation/cublas_lt.h
// The functions of cuBLASLt that cuda/device/cublas_lt.h opens, on emulated GPUs: for bf16 matrices
// with A transposed, and D bf16 or f32; and for e4m3 matrices with scales of rows (OUTER_VEC_32F of
// both), or of 128 columns of B (VEC128_32F) and 128 x 128 elements of A (BLK128x128_32F). Products
// are sums in f32 in the order of K.
//
// What the library leaves to its caller is checked: sizes and strides that fit each other, scales
// that fit the types, memory that is the GPU's, addresses as aligned as the preference says, an
// algorithm of these sizes, and workspace, which is overwritten. There is no algorithm for a D of
// one row, so that tests see what a caller does then.
#ifndef PAGEMILL_CUDA_EMULATION_CUBLAS_LT_H_
#define PAGEMILL_CUDA_EMULATION_CUBLAS_LT_H_

#include <cstddef>
#include <cstdint>

#include "cuda/emulation/runtime.h"

struct emulatedCublasLtAlgorithm {
  uint64_t data[8];
};
struct emulatedCublasLtHeuristic {
  emulatedCublasLtAlgorithm algorithm;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

// What every algorithm needs.
inline constexpr int64_t emulatedCublasLtWorkspaceBytes = int64_t{64} << 10;

// For tests: products that were enqueued, and algorithms that were looked for, in this process.
int64_t emulatedCublasLtNumProducts();
int64_t emulatedCublasLtNumSearches();
// For tests: from now on, the library of this version.
void emulatedCublasLtSetVersion(size_t version);

size_t emulatedCublasLtGetVersion();
int emulatedCublasLtCreate(void** handle);
int emulatedCublasLtDestroy(void* handle);
int emulatedCublasLtMatmulDescCreate(void** product, int compute_type, int scale_type);
int emulatedCublasLtMatmulDescDestroy(void* product);
int emulatedCublasLtMatmulDescSetAttribute(void* product, int attribute, const void* value,
                                           size_t bytes);
int emulatedCublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns,
                                       int64_t stride);
int emulatedCublasLtMatrixLayoutDestroy(void* layout);
int emulatedCublasLtMatmulPreferenceCreate(void** preference);
int emulatedCublasLtMatmulPreferenceDestroy(void* preference);
int emulatedCublasLtMatmulPreferenceSetAttribute(void* preference, int attribute,
                                                 const void* value, size_t bytes);
int emulatedCublasLtMatmulAlgoGetHeuristic(void* handle, void* product, void* a, void* b, void* c,
                                           void* d, void* preference, int most,
                                           emulatedCublasLtHeuristic* found, int* num_found);
int emulatedCublasLtMatmul(void* handle, void* product, const void* alpha, const void* a,
                           void* a_layout, const void* b, void* b_layout, const void* beta,
                           const void* c, void* c_layout, void* d, void* d_layout,
                           const emulatedCublasLtAlgorithm* algorithm, void* workspace,
                           size_t workspace_bytes, emulatedStream_t stream);
const char* emulatedCublasLtGetStatusString(int error);

#endif  // PAGEMILL_CUDA_EMULATION_CUBLAS_LT_H_
