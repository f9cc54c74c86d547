#include "cc/ops/row_maxima_conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "cc/ops/row_maxima.h"

namespace pagemill::ops {
namespace {

using conformance::BitEqual;
using conformance::Random;

constexpr std::byte kGuard{0xa5};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The definition, applied to one logit after the other.
RowMaximum Expected(const float* logits, int64_t columns) {
  RowMaximum best;
  for (int64_t i = 0; i < columns; ++i) {
    if (std::isnan(logits[i]) || logits[i] == kInfinity) return {.logit = kInfinity};
    if (logits[i] > best.logit) best = {.logit = logits[i], .column = static_cast<int32_t>(i)};
  }
  return best;
}

// Biases, which are the logits of rows of x that are 0: many equal values, then invalid logits.
std::vector<std::vector<float>> Biases(int64_t m, Random& random) {
  std::vector<std::vector<float>> biases(6, std::vector<float>(static_cast<size_t>(m)));
  for (float& b : biases[0]) b = static_cast<float>(random.Int(-1, 1));
  biases[1] = biases[0];
  for (size_t i = 0; i < biases[1].size(); i += 2) biases[1][i] = -kInfinity;
  std::fill(biases[2].begin(), biases[2].end(), -kInfinity);
  biases[3] = biases[4] = biases[5] = biases[0];
  biases[3].back() = kNaN;
  biases[4][biases[4].size() / 2] = kInfinity;
  biases[5].front() = -kNaN;
  return biases;
}

// Runs with exactly workspace_bytes() of NaN between guards.
std::vector<RowMaximum> Run(const Kernel& kernel, const OpCall& call, device::ThreadPool& pool,
                            int64_t columns) {
  const int64_t bytes =
      kernel.workspace_bytes == nullptr ? 0 : kernel.workspace_bytes(call, pool.num_threads());
  std::vector<std::byte> memory(static_cast<size_t>(bytes + 3 * 64), kGuard);
  std::byte* workspace = memory.data() + 64;
  workspace += (64 - reinterpret_cast<uintptr_t>(workspace) % 64) % 64;
  std::fill_n(workspace, bytes, std::byte{0xff});
  KernelContext context{&pool, {workspace, static_cast<size_t>(bytes)}};
  std::vector<RowMaximum> maxima(static_cast<size_t>(call.outputs[0].shape[0]));
  RunRowMaxima(kernel, call, context, columns, maxima.data());
  const auto is_guard = [](std::byte b) { return b == kGuard; };
  EXPECT_TRUE(std::all_of(memory.data(), workspace, is_guard));
  EXPECT_TRUE(std::all_of(workspace + bytes, memory.data() + memory.size(), is_guard))
      << "wrote past its workspace of " << bytes << " bytes";
  return maxima;
}

void CheckRow(const RowMaximaCase& c, const Kernel& kernel, std::span<device::ThreadPool> pools) {
  if (kernel.run_row_maxima == nullptr)
    pools = pools.subspan(1, 1);  // all such kernels share a loop
  const conformance::PackedCall packed(kernel, c.call, pools[0]);
  conformance::RunKernel(kernel, c.call, pools[0]);
  const std::vector<float> logits = c.y.ToFloat();
  const int64_t m = c.call.outputs[0].RowElements();
  for (int64_t columns : {m, m - 1, std::min<int64_t>(m, 33), int64_t{0}}) {
    for (device::ThreadPool& pool : pools) {
      c.y.Poison();
      const std::vector<uint8_t> poisoned = c.y.Bytes();
      const std::vector<RowMaximum> maxima = Run(kernel, packed.call(), pool, columns);
      ASSERT_TRUE(kernel.run_row_maxima == nullptr || c.y.Bytes() == poisoned) << "logits written";
      for (size_t n = 0; n < maxima.size(); ++n) {
        const RowMaximum expected = Expected(&logits[n * static_cast<size_t>(m)], columns);
        ASSERT_EQ(maxima[n].column, expected.column)
            << "row " << n << ", " << columns << " columns, " << pool.num_threads() << " threads";
        ASSERT_TRUE(BitEqual({&maxima[n].logit, 1}, {&expected.logit, 1}));
      }
    }
  }
}

}  // namespace

void CheckRowMaxima(const RowMaximaCase& c) {
  Random random(17);
  const int64_t rows = c.x.view().shape[0], m = c.bias.view().shape[0];
  device::ThreadPool pools[] = {device::ThreadPool({.num_threads = 1}),
                                device::ThreadPool({.num_threads = 2}),
                                device::ThreadPool({.num_threads = 3})};
  const auto check = [&] {
    for (const Kernel* kernel : conformance::SupportedKernels(c.op, c.caps, c.call)) {
      SCOPED_TRACE(std::string(kernel->name));
      CheckRow(c, *kernel, pools);
    }
  };
  c.x.FillUniform(random, -2, 2);
  c.bias.FillUniform(random, -1, 1);
  check();
  if (c.random_only) return;
  for (int64_t n = 0; n < rows; n += 2) {  // every second row stays random
    float* row = c.x.view().Row<float>(n);
    std::fill(row, row + c.x.view().RowElements(), 0.0f);
  }
  for (const std::vector<float>& bias : Biases(m, random)) {
    c.bias.Set(bias);
    check();
  }
}

}  // namespace pagemill::ops
