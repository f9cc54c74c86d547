// Compares every Vec of this machine with plain arithmetic, and the functions of vec_math.h with
// double precision over dense samples of their range.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/vec/vec_probe.h"
#include "cc/tensor/float16.h"
#include "cc/tensor/float8.h"

namespace pagemill::ops {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class VecTest : public testing::TestWithParam<std::pair<std::string, const VecProbe*>> {
 protected:
  void SetUp() override {
    const device::Capabilities caps = device::DetectCapabilities();
    const std::string& name = GetParam().first;
    if ((name == "avx2" && !caps.cpu.avx2) || (name == "avx512" && !caps.cpu.avx512)) {
      GTEST_SKIP() << "this machine has no " << name;
    }
  }
  const VecProbe& probe() const { return *GetParam().second; }
  int lanes() const { return probe().lanes; }

  using Map = void (*)(const float*, float*, int64_t);
  // The largest of error(x, f(x)) over 200,000 points of [low, high].
  template <typename Error>
  double Worst(Map map, double low, double high, const Error& error) const {
    constexpr int kPoints = 200000;
    std::vector<float> x(kPoints), y(kPoints, NAN);
    for (int i = 0; i < kPoints; ++i) {
      x[i] = static_cast<float>(low + (high - low) * i / (kPoints - 1));
    }
    map(x.data(), y.data(), kPoints);
    double worst = 0;
    for (int i = 0; i < kPoints; ++i) {
      const double e = error(static_cast<double>(x[i]), static_cast<double>(y[i]));
      if (!(e <= worst)) worst = e;  // a NaN stays
    }
    return worst;
  }
  float At(Map map, float x) const {
    std::vector<float> in(lanes(), x), out(lanes());
    map(in.data(), out.data(), lanes());
    return out.back();
  }
};

// Relative error against `exact`.
template <typename Function>
auto Relative(const Function& exact) {
  return [exact](double x, double y) {
    const double e = exact(x);
    return e == 0 ? std::fabs(y) : std::fabs(y - e) / std::fabs(e);
  };
}

// Absolute error in units of max(1, |x|).
template <typename Function>
auto Absolute(const Function& exact) {
  return
      [exact](double x, double y) { return std::fabs(y - exact(x)) / std::fmax(1, std::fabs(x)); };
}

TEST_P(VecTest, Exp2) {
  const auto exact = [](double x) { return std::exp2(x); };
  EXPECT_LE(Worst(probe().exp2, -126, 127.4, Relative(exact)), 2e-7);
  EXPECT_LE(Worst(probe().exp2, -1, 1, Relative(exact)), 2e-7);
  EXPECT_EQ(At(probe().exp2, 0), 1);
  EXPECT_EQ(At(probe().exp2, kInf), kInf);
  EXPECT_EQ(At(probe().exp2, 500), kInf);
  EXPECT_TRUE(std::isnan(At(probe().exp2, NAN)));
  for (float x : {-127.0f, -150.0f, -1e30f, -kInf}) {
    EXPECT_GE(At(probe().exp2, x), 0) << x;
    EXPECT_LE(At(probe().exp2, x), 0x1p-126f) << x;
  }
}

TEST_P(VecTest, Exp) {
  const auto exact = [](double x) { return std::exp(x); };
  EXPECT_LE(Worst(probe().exp, -80, 80,
                  [&](double x, double y) {
                    return Relative(exact)(x, y) / (2e-7 + 7e-8 * std::fabs(x));
                  }),
            1);
}

TEST_P(VecTest, Tanh) {
  const auto exact = [](double x) { return std::tanh(x); };
  EXPECT_LE(Worst(probe().tanh, -1, 1, Relative(exact)), 4e-7);
  EXPECT_LE(Worst(probe().tanh, -20, 20, Relative(exact)), 4e-7);
  EXPECT_LE(Worst(probe().tanh, 1e-7, 1e-3, Relative(exact)), 4e-7);
  EXPECT_EQ(At(probe().tanh, -kInf), -1);
  EXPECT_TRUE(std::isnan(At(probe().tanh, NAN)));
}

TEST_P(VecTest, Silu) {
  const auto exact = [](double x) { return x / (1 + std::exp(-x)); };
  EXPECT_LE(Worst(probe().silu, -80, 80,
                  [&](double x, double y) {
                    return Relative(exact)(x, y) / (4e-7 + 7e-8 * std::fabs(x));
                  }),
            1);
  EXPECT_LE(Worst(probe().silu, -200, 200, Absolute(exact)), 1e-6);
}

TEST_P(VecTest, Softplus) {
  const auto exact = [](double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); };
  EXPECT_LE(Worst(probe().softplus, -80, 80,
                  [&](double x, double y) {
                    return Relative(exact)(x, y) / (4e-7 + 7e-8 * std::fabs(x));
                  }),
            1);
  EXPECT_LE(Worst(probe().softplus, -200, 200,
                  [&](double x, double y) { return Absolute(exact)(x, y) / std::fmax(1, std::fabs(x)); }),
            4e-7);
  EXPECT_EQ(At(probe().softplus, kInf), kInf);
  EXPECT_TRUE(std::isnan(At(probe().softplus, NAN)));
}

TEST_P(VecTest, GeluErf) {
  const auto exact = [](double x) { return 0.5 * x * std::erfc(-x * std::sqrt(0.5)); };
  EXPECT_LE(Worst(probe().gelu_erf, -8, 8, Absolute(exact)), 1e-6);
  EXPECT_LE(Worst(probe().gelu_erf, -100, 100, Absolute(exact)), 1e-6);
}

TEST_P(VecTest, GeluTanh) {
  const auto exact = [](double x) {
    return 0.5 * x * (1 + std::tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
  };
  EXPECT_LE(Worst(probe().gelu_tanh, -8, 8, Absolute(exact)), 1e-6);
  EXPECT_LE(Worst(probe().gelu_tanh, -1000, 1000, Absolute(exact)), 1e-6);
}

TEST_P(VecTest, FirstElementsOnly) {
  for (int n = 0; n <= lanes(); ++n) {
    std::vector<float> x(n), y(lanes(), -7);  // x has no further elements
    for (int i = 0; i < n; ++i) x[i] = static_cast<float>(i) + 0.5f;
    probe().copy_n(x.data(), y.data(), n);
    for (int i = 0; i < lanes(); ++i) EXPECT_EQ(y[i], i < n ? x[i] : -7) << n;
    std::vector<uint16_t> half(lanes(), 0xbeef);
    probe().narrow_n(x.data(), half.data(), n);
    for (int i = 0; i < lanes(); ++i) EXPECT_EQ(half[i], i < n ? FloatToBf16(x[i]) : 0xbeef);
    std::vector<uint16_t> exact(half.begin(), half.begin() + n);
    std::fill(y.begin(), y.end(), -7.0f);
    probe().widen_n(exact.data(), y.data(), n);
    for (int i = 0; i < lanes(); ++i) EXPECT_EQ(y[i], i < n ? Bf16ToFloat(half[i]) : -7);
  }
}

TEST_P(VecTest, RoundsToBf16) {
  const float values[16] = {1.00390625f, 1.01171875f, 1.0039063f, -1.00390625f, 3.4e38f, -3.4e38f,
                            kInf,        -kInf,       NAN,        -NAN,         0.0f,    -0.0f,
                            1e-40f,      65280.5f,    0.1f,       3.0f};
  for (int first = 0; first < 16; first += lanes()) {
    std::vector<uint16_t> half(lanes());
    std::vector<float> wide(lanes());
    probe().narrow(values + first, half.data());
    probe().widen(half.data(), wide.data());
    for (int i = 0; i < lanes(); ++i) {
      const float value = values[first + i];
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(wide[i]));
      } else {
        EXPECT_EQ(half[i], FloatToBf16(value)) << value;
        EXPECT_EQ(wide[i], Bf16ToFloat(half[i])) << value;
      }
    }
  }
}

TEST_P(VecTest, WidensEveryF8) {
  for (int first = 0; first < 256; first += lanes()) {
    std::vector<uint8_t> codes(lanes());
    std::vector<float> all(lanes()), part(lanes());
    for (int i = 0; i < lanes(); ++i) codes[i] = static_cast<uint8_t>(first + i);
    probe().widen_f8(codes.data(), all.data());
    const int n = lanes() - 1;
    const std::vector<uint8_t> exact(codes.begin(), codes.begin() + n);
    probe().widen_f8_n(exact.data(), part.data(), n);
    for (int i = 0; i < lanes(); ++i) {
      const uint32_t expected = std::bit_cast<uint32_t>(F8E4M3ToFloat(codes[i]));
      EXPECT_EQ(std::bit_cast<uint32_t>(all[i]), expected) << first + i;
      EXPECT_EQ(std::bit_cast<uint32_t>(part[i]), i < n ? expected : 0) << first + i;
    }
  }
}

// Every number of the format, the midpoints between neighbours, and the floats next to each of
// them.
TEST_P(VecTest, RoundsToF8) {
  std::vector<float> values = {0.0f, -0.0f, kInf, -kInf, NAN, -NAN, 448.1f, -3e38f, 1e-40f};
  for (int code = 0; code < 0x7e; ++code) {
    const float low = F8E4M3ToFloat(static_cast<uint8_t>(code));
    const float high = F8E4M3ToFloat(static_cast<uint8_t>(code + 1));
    for (const float v : {low, (low + high) / 2}) {
      for (const float to : {-kInf, v, kInf}) values.push_back(std::nextafter(v, to));
      values.push_back(-v);
    }
  }
  for (size_t i = 0; i < values.size(); ++i) {
    std::vector<float> x(lanes(), 1.0f);
    const int lane = static_cast<int>(i) % lanes();
    x[lane] = values[i];
    std::vector<uint8_t> codes(lanes(), 0x55), part(lanes(), 0x55);
    probe().narrow_f8(x.data(), codes.data());
    probe().narrow_f8_n(x.data(), part.data(), lane + 1);
    for (int j = 0; j < lanes(); ++j) {
      EXPECT_EQ(codes[j], FloatToF8E4M3(x[j])) << x[j];
      EXPECT_EQ(part[j], j <= lane ? FloatToF8E4M3(x[j]) : 0x55) << x[j];
    }
  }
}

TEST_P(VecTest, Lanes) {
  std::vector<float> x(lanes()), y(lanes()), z(lanes());
  for (int i = 0; i < lanes(); ++i) {
    x[i] = static_cast<float>((i * 7 + 3) % 16);
    y[i] = -1 - static_cast<float>(i);
  }
  for (int low = -1; low <= lanes(); ++low) {
    for (int high = -2; high <= lanes() + 1; ++high) {
      probe().range(x.data(), y.data(), z.data(), low, high);
      for (int i = 0; i < lanes(); ++i) EXPECT_EQ(z[i], i >= low && i < high ? x[i] : y[i]);
    }
  }
  probe().swap_pairs(x.data(), z.data());
  for (int i = 0; i < lanes(); ++i) EXPECT_EQ(z[i], x[i ^ 1]);
  double sum = 0;
  for (float v : x) sum += v;
  EXPECT_EQ(probe().sum(x.data()), sum);
  EXPECT_EQ(probe().maximum(x.data()), *std::max_element(x.begin(), x.end()));
  EXPECT_EQ(probe().maximum(y.data()), -1);
}

TEST_P(VecTest, Transpose) {
  std::vector<float> square(lanes() * lanes());
  for (size_t i = 0; i < square.size(); ++i) square[i] = static_cast<float>(i);
  probe().transpose(square.data());
  for (int r = 0; r < lanes(); ++r) {
    for (int c = 0; c < lanes(); ++c) EXPECT_EQ(square[r * lanes() + c], c * lanes() + r);
  }
}

INSTANTIATE_TEST_SUITE_P(, VecTest,
                         testing::Values(
#if defined(__x86_64__)
                             std::pair<std::string, const VecProbe*>("avx512", &kVecProbeAvx512),
                             std::pair<std::string, const VecProbe*>("avx2", &kVecProbeAvx2),
#endif
                             std::pair<std::string, const VecProbe*>("portable",
                                                                     &kVecProbePortable)),
                         [](const auto& info) { return info.param.first; });

}  // namespace
}  // namespace pagemill::ops
