// File: cuda/internal/nvcc_wgmma.h
// The words of cuda/gpu_wgmma.h, for nvcc. Include that header.
#ifndef PAGEMILL_CUDA_INTERNAL_NVCC_WGMMA_H_
#define PAGEMILL_CUDA_INTERNAL_NVCC_WGMMA_H_

#include <cuda.h>

#include <cstdint>
#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/cuda_host_adapter.hpp>
#include <cutlass/numeric_types.h>
#include <type_traits>

#include "cuda/gpu_vendor.h"

#define PAGEMILL_GRID_CONSTANT __grid_constant__

namespace pagemill::gpu {

using TileMap = CUtensorMap;

template <typename T>
PAGEMILL_DEVICE T* AlignedShared() {
  unsigned char* const first = DynamicShared<unsigned char>();
  const uint32_t beyond = cute::cast_smem_ptr_to_uint(first) % kSharedAlignment;
  return reinterpret_cast<T*>(first + (kSharedAlignment - beyond) % kSharedAlignment);
}

PAGEMILL_DEVICE void InitBarrier(uint64_t* barrier, int arrivals) {
  cutlass::arch::ClusterBarrier::init(barrier, static_cast<uint32_t>(arrivals));
}
PAGEMILL_DEVICE void ShowBarriers() { cutlass::arch::fence_barrier_init(); }
PAGEMILL_DEVICE void Arrive(uint64_t* barrier) { cutlass::arch::ClusterBarrier::arrive(barrier); }
PAGEMILL_DEVICE void ArriveExpecting(uint64_t* barrier, int bytes) {
  cutlass::arch::ClusterTransactionBarrier::arrive_and_expect_tx(barrier,
                                                                 static_cast<uint32_t>(bytes));
}
PAGEMILL_DEVICE void ArriveWhenCopied(uint64_t* barrier) {
  cutlass::arch::cpasync_barrier_arrive_noinc(barrier);
}
PAGEMILL_DEVICE void AwaitPhase(uint64_t* barrier, uint32_t parity) {
  cutlass::arch::ClusterBarrier::wait(barrier, parity);
}

inline cudaError_t MakeTileMap(const StackOfTiles& of, TileMap& map) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(of.columns), static_cast<cuuint64_t>(of.rows),
                              static_cast<cuuint64_t>(of.matrices)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(of.row_bytes),
                                static_cast<cuuint64_t>(of.matrix_bytes)};
  const cuuint32_t tile[] = {static_cast<cuuint32_t>(kTileRowBytes / ElementBytes(of.type)),
                             static_cast<cuuint32_t>(of.tile_rows), 1};
  const auto element = of.type == ProductType::kBf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                     : CU_TENSOR_MAP_DATA_TYPE_UINT8;
  const cuuint32_t steps[] = {1, 1, 1};
  const CUresult result = CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeTiled)(
      &map, element, /*tensorRank=*/3, const_cast<void*>(of.data), sizes, strides, tile, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

PAGEMILL_DEVICE void LoadTile(void* to, const TileMap& map, int column, int row, int matrix,
                              uint64_t* barrier) {
  cute::SM90_TMA_LOAD_3D::copy(&map, barrier,
                               static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL), to,
                               column, row, matrix);
}

PAGEMILL_DEVICE void ShowProducts() { cutlass::arch::fence_view_async_shared(); }

template <int kN, int kWarpgroups, ProductType kType = ProductType::kBf16, int kParts>
PAGEMILL_DEVICE void StartProduct(const void* w, const void* x, int warpgroup,
                                  float (&sums)[kParts][kN / 2]) {
  using cute::_, cute::_1, cute::Int, cute::Shape;
  using Element = std::conditional_t<kType == ProductType::kBf16, cutlass::bfloat16_t,
                                     cutlass::float_e4m3_t>;
  using Columns = Int<kTileRowBytes / sizeof(Element)>;
  using Rows = Int<kParts * kWarpgroups * kProductRows>;
  using Swizzled = cute::GMMA::Layout_K_SW128_Atom<Element>;
  auto mma = cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float,
                                 Shape<Int<kProductRows>, Int<kN>, Columns>, cute::GMMA::Major::K,
                                 cute::GMMA::Major::K>(),
      cute::Layout<Shape<Int<kWarpgroups>, _1, _1>>{});
  const auto rows_of = [](const void* first, auto count) {
    return cute::make_tensor(cute::make_smem_ptr(static_cast<const Element*>(first)),
                             cute::tile_to_shape(Swizzled{}, cute::make_shape(count, Columns{})));
  };
  const auto own =
      mma.get_slice(warpgroup * kWarpgroupThreads + LinearThread() % kWarpgroupThreads);
  const auto of_w = own.make_fragment_A(own.partition_A(rows_of(w, Rows{})));
  const auto of_x = own.make_fragment_B(own.partition_B(rows_of(x, Int<kN>{})));
  auto of_sums =
      cute::make_tensor(cute::make_rmem_ptr(&sums[0][0]),
                        cute::partition_fragment_C(mma, Shape<Rows, Int<kN>>{}).layout());
  mma.accumulate_ = cute::GMMA::ScaleOut::One;
  cute::warpgroup_fence_operand(of_sums);
  cute::warpgroup_arrive();
  PAGEMILL_UNROLL
  for (int k = 0; k < cute::size<2>(of_w); ++k) {
    cute::gemm(mma, of_w(_, _, k), of_x(_, _, k), of_sums);
  }
}
PAGEMILL_DEVICE void CommitProducts() { cute::warpgroup_commit_batch(); }
template <int kUnderWay, int kParts, int kSums>
PAGEMILL_DEVICE void AwaitProducts(float (&sums)[kParts][kSums]) {
  cute::warpgroup_wait<kUnderWay>();
  auto of_sums = cute::make_tensor(cute::make_rmem_ptr(&sums[0][0]),
                                   cute::Layout<cute::Int<kParts * kSums>>{});
  cute::warpgroup_fence_operand(of_sums);
}

template <int kRegisters>
PAGEMILL_DEVICE void GiveRegisters() {
  cutlass::arch::warpgroup_reg_dealloc<kRegisters>();
}
template <int kRegisters>
PAGEMILL_DEVICE void TakeRegisters() {
  cutlass::arch::warpgroup_reg_alloc<kRegisters>();
}

PAGEMILL_DEVICE void StoreTransposed(const uint32_t (&pairs)[4], void* row) {
  cute::SM90_U16x8_STSM_T::copy(pairs[0], pairs[1], pairs[2], pairs[3],
                                *static_cast<cute::uint128_t*>(row));
}

PAGEMILL_DEVICE bool CountWarp(uint32_t* counter, int warps) {
  SyncWarp(AllLanes());
  int is_last = 0;
  if (Lane() == 0) {
    const auto last = static_cast<uint32_t>(warps - 1);
    __threadfence();
    is_last = atomicInc(counter, last) == last;  // back to 0 behind the last
    __threadfence();
  }
  is_last = Shuffle(AllLanes(), is_last, 0);
  SyncWarp(AllLanes());
  return is_last != 0;
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_INTERNAL_NVCC_WGMMA_H_
