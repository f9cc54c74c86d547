#include "cc/device/capabilities.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace pagemill::device {
namespace {

TEST(Capabilities, NamesWhatIsThere) {
  EXPECT_EQ(CpuCapabilities().ToString(), "baseline");
  Capabilities caps;
  caps.cpu.avx2 = true;
  caps.cpu.avx512 = true;
  caps.cpu.amx_int8 = true;
  EXPECT_EQ(caps.cpu.ToString(), "avx2 avx512 amx_int8");
}

TEST(Capabilities, DetectionAgreesWithTheCompilersOwn) {
  const Capabilities caps = DetectCapabilities();
  EXPECT_GE(caps.cpu.cores, 1);
#if defined(__x86_64__)
  EXPECT_EQ(caps.cpu.avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(caps.cpu.avx_vnni, __builtin_cpu_supports("avxvnni") && caps.cpu.avx2);
  EXPECT_EQ(caps.cpu.avx512,
            __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
  EXPECT_EQ(caps.cpu.avx512_vnni, __builtin_cpu_supports("avx512vnni") && caps.cpu.avx512);
  EXPECT_EQ(caps.cpu.avx512_vbmi, __builtin_cpu_supports("avx512vbmi") && caps.cpu.avx512);
  EXPECT_FALSE(caps.cpu.vxe || caps.cpu.asimd_dotprod);
#else
  EXPECT_FALSE(caps.cpu.avx2 || caps.cpu.avx512 || caps.cpu.amx_bf16);
#endif
}

// Wider sets are never reported without the narrower ones that their kernels use.
TEST(Capabilities, WiderImpliesNarrower) {
  const Capabilities caps = DetectCapabilities();
  if (caps.cpu.avx512 || caps.cpu.avx_vnni) {
    EXPECT_TRUE(caps.cpu.avx2);
  }
  if (caps.cpu.avx512_vnni || caps.cpu.avx512_bf16 || caps.cpu.amx_bf16 || caps.cpu.amx_int8) {
    EXPECT_TRUE(caps.cpu.avx512);
  }
}

// The instruction sets of an emulated CPU are known.
TEST(Capabilities, DetectionFindsWhatTheCpuHas) {
  const char* expected = std::getenv("PAGEMILL_TEST_CAPABILITIES");
  if (expected == nullptr) GTEST_SKIP() << "PAGEMILL_TEST_CAPABILITIES is not set";
  EXPECT_EQ(DetectCapabilities().cpu.ToString(), expected);
}

TEST(Capabilities, DetectionRepeats) {
  EXPECT_EQ(DetectCapabilities().cpu.ToString(), DetectCapabilities().cpu.ToString());
}

}  // namespace
}  // namespace pagemill::device
