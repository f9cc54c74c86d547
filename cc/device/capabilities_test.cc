#include "cc/device/capabilities.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace pagemill::device {
namespace {

TEST(Capabilities, NamesWhatIsThere) {
  EXPECT_EQ(Capabilities().ToString(), "baseline");
  Capabilities caps;
  caps.avx2 = true;
  caps.avx512 = true;
  caps.amx_int8 = true;
  EXPECT_EQ(caps.ToString(), "avx2 avx512 amx_int8");
}

TEST(Capabilities, DetectionAgreesWithTheCompilersOwn) {
  const Capabilities caps = DetectCapabilities();
  EXPECT_GE(caps.cores, 1);
#if defined(__x86_64__)
  EXPECT_EQ(caps.avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(caps.avx_vnni, __builtin_cpu_supports("avxvnni") && caps.avx2);
  EXPECT_EQ(caps.avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512dq") &&
                             __builtin_cpu_supports("avx512vl"));
  EXPECT_EQ(caps.avx512_vnni, __builtin_cpu_supports("avx512vnni") && caps.avx512);
  EXPECT_EQ(caps.avx512_vbmi, __builtin_cpu_supports("avx512vbmi") && caps.avx512);
  EXPECT_FALSE(caps.vxe || caps.asimd_dotprod);
#else
  EXPECT_FALSE(caps.avx2 || caps.avx512 || caps.amx_bf16);
#endif
}

// Wider sets are never reported without those that their kernels also use.
TEST(Capabilities, WiderImpliesNarrower) {
  const Capabilities caps = DetectCapabilities();
  if (caps.avx512 || caps.avx_vnni) {
    EXPECT_TRUE(caps.avx2);
  }
  if (caps.avx512_vnni || caps.avx512_bf16 || caps.amx_bf16 || caps.amx_int8) {
    EXPECT_TRUE(caps.avx512);
  }
}

// Of an emulated CPU it is known what it has.
TEST(Capabilities, DetectionFindsWhatTheCpuHas) {
  const char* expected = std::getenv("PAGEMILL_TEST_CAPABILITIES");
  if (expected == nullptr) GTEST_SKIP() << "only where PAGEMILL_TEST_CAPABILITIES names them";
  EXPECT_EQ(DetectCapabilities().ToString(), expected);
}

TEST(Capabilities, DetectionRepeats) {
  EXPECT_EQ(DetectCapabilities().ToString(), DetectCapabilities().ToString());
}

}  // namespace
}  // namespace pagemill::device
