// Programs on the GPU: the same tokens as on the CPU, kernel by kernel and from graphs.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "cc/program/device/testing/device_parity.h"
#include "cc/program/testing/tiny_llama.h"
#include "cuda/emulation/cublas_lt.h"
#include "cuda/emulation/runtime.h"
#include "cuda/testing/gpu_under_test.h"

namespace pagemill::gpu {
namespace {

using program::testing::TinyLlamaText;

Status Check(const std::string& text, DType act, double tolerance) {
  const GpuUnderTest gpu;
  return program::testing::CheckCloseLogits(text, act, tolerance, gpu.under_test);
}

// The program with keys in rows, as libraries' kernels have them.
std::string WithKeysInRows(const std::string& text) {
  std::istringstream lines(text);
  std::string rows;
  for (std::string line; std::getline(lines, line);) {
    const bool has_keys =
        line.starts_with("op kv_write ") || line.starts_with("op paged_attention ");
    rows += line + (has_keys ? " keys_in_rows=1\n" : "\n");
  }
  return rows;
}

TEST(Programs, ALlamaHasTheTokensOfTheCpu) {
  for (int lanes : {32, 64}) {
    emulation::EmulatedGpu::Configure({.warp_lanes = lanes});
    const Status status = Check(TinyLlamaText({.seed = 3, .window = 8}), DType::kF32, 1e-4);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

TEST(Programs, KeysInRowsGiveTheTokensOfTheCpu) {
  const std::string text = WithKeysInRows(TinyLlamaText({.seed = 3}));
  for (const DType act : {DType::kF32, DType::kBF16}) {
    const Status status = Check(text, act, act == DType::kF32 ? 1e-4 : 0.05);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

TEST(Programs, ALlamaOfBlocksHasTheTokensOfTheCpu) {
  const Status status = Check(TinyLlamaText({.seed = 4, .weight_dtype = DType::kQ4_1}),
                              DType::kF32, 1e-4);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(Programs, RanksOfALlamaHaveTheTokensOfOne) {
  program::testing::TinyLlamaOptions options = {.seed = 6};
  const std::string whole = TinyLlamaText(options);
  std::vector<std::string> parts;
  for (options.ranks = 2; options.rank < options.ranks; ++options.rank) {
    parts.push_back(TinyLlamaText(options));
  }
  const GpuUnderTest gpu;
  const Status status = program::testing::CheckLogitsOfRanks(whole, parts, 1e-4, gpu.under_test);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

// Activations of 8 bits of mantissa in four layers.
TEST(Programs, ALlamaInBf16IsClose) {
  for (const bool has_cublas_lt : {true, false}) {
    emulation::EmulatedGpu::Configure({.has_cublas_lt = has_cublas_lt});
    const int64_t before = emulatedCublasLtNumProducts();
    const Status status = Check(TinyLlamaText({.seed = 5, .weight_dtype = DType::kBF16}),
                                DType::kBF16, 0.05);
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(emulatedCublasLtNumProducts() > before, has_cublas_lt);
  }
}

TEST(Programs, ALlamaInBf16IsCloseOnMatrixCores) {
  for (int lanes : {32, 64}) {
    emulation::EmulatedGpu::Configure({.warp_lanes = lanes, .is_of_amd = true});
    const Status status = Check(TinyLlamaText({.seed = 5, .weight_dtype = DType::kBF16}),
                                DType::kBF16, 0.05);
    EXPECT_TRUE(status.ok()) << lanes << " lanes: " << status.ToString();
  }
}

}  // namespace
}  // namespace pagemill::gpu
