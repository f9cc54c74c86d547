// The AMX kernels over emulated tiles.
#include <gtest/gtest.h>

#include <string_view>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/linear/packed_gemm.h"
#include "cc/ops/linear/scaled/emulated_scaled.h"
#include "cc/ops/linear/scaled/packed_scaled.h"

namespace pagemill::ops::scaled {
namespace {

#if defined(__x86_64__)
// The kernel of `linear` for scaled weights that has this name, over emulated tiles.
template <const linear::PackedGemm* kKernels>
void Check(std::string_view name) {
  device::Capabilities caps = device::DetectCapabilities();
  if (!caps.cpu.avx512_vbmi || !caps.cpu.avx512_vnni || !caps.cpu.avx512_bf16) {
    GTEST_SKIP() << "needs AVX-512 with VBMI, VNNI and BF16";
  }
  caps.cpu.amx_int8 = caps.cpu.amx_bf16 = true;
  Kernel kernel;
  for (const Kernel& of_machine : LinearOp().kernels) {
    if (of_machine.name == name) kernel = of_machine;  // the last one is for scaled weights
  }
  ASSERT_EQ(kernel.packing->layout, kPackedScaledLayout);
  kernel.name = "emulated";
  kernel.run = [](const OpCall& call, KernelContext& context) {
    linear::RunPacked(*kKernels, call, context);
  };
  kernel.run_row_maxima = [](const OpCall& call, KernelContext& context, int64_t columns,
                             RowMaximum* maxima) {
    linear::RunPackedMaxima(*kKernels, call, context, columns, maxima);
  };
  kernel.workspace_bytes = [](const OpCall& call, int32_t num_threads) {
    return linear::PackedWorkspaceBytes(*kKernels, call, num_threads);
  };
  const Kernel kernels[] = {kernel, conformance::ReferenceKernel(LinearOp())};
  CheckScaledConformance({.op = "linear", .check = LinearOp().check, .kernels = kernels}, caps);
}

TEST(ScaledTiles, Int8Conforms) { Check<&kEmulatedInt8Kernels>("amx_int8"); }

TEST(ScaledTiles, Fp8Conforms) { Check<&kEmulatedE4m3Kernels>("amx_bf16"); }
#endif

}  // namespace
}  // namespace pagemill::ops::scaled
