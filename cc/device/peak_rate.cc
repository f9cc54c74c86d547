#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "cc/device/large_buffer.h"
#include "cc/device/machine_limits.h"
#include "cc/device/peak_kernels.h"

namespace pagemill::device {
namespace {

using Clock = std::chrono::steady_clock;
using Lanes4 = float __attribute__((vector_size(16)));

constexpr int kPortableChains = 12;
// Long enough that clock resolution and the pool's start-up do not matter.
constexpr double kChunkSeconds = 1e-3;
constexpr int64_t kPageBytes = 4096;

double Seconds(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// sum = sum * factor + term: unlike sum + a * b, it cannot be simplified on a CPU without fused
// instructions. Factors below one keep the sums finite.
double MultiplyPortable(const std::byte* operands, int64_t steps) {
  Lanes4 factor;
  Lanes4 term;
  std::memcpy(&factor, operands, sizeof(factor));
  std::memcpy(&term, operands + sizeof(factor), sizeof(term));
  factor *= 0.25f;
  Lanes4 sums[kPortableChains];  // distinct: equal chains would be merged
#pragma GCC unroll 12
  for (int c = 0; c < kPortableChains; ++c) sums[c] = Lanes4{} + static_cast<float>(c);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int c = 0; c < kPortableChains; ++c) sums[c] = sums[c] * factor + term;
  }
#pragma GCC unroll 12
  for (int c = 0; c < kPortableChains; ++c) asm volatile("" : : "m"(sums[c]));
  return 2.0 * 4 * kPortableChains * static_cast<double>(steps);
}

constexpr PeakKernel kPortable = {
    "portable", "f32", "registers", [](const Capabilities&) { return true; }, 64, MultiplyPortable};

// All kernels that `caps` supports, in table order.
std::vector<const PeakKernel*> PresentKernels(const Capabilities& caps) {
  std::vector<const PeakKernel*> present = {&PortablePeak()};
  for (const auto& kernels : {VectorPeaksX86(), TilePeaksX86(), VectorPeaksArm()}) {
    for (const PeakKernel& kernel : kernels) {
      if (kernel.present(caps)) present.push_back(&kernel);
    }
  }
  return present;
}

Peak PeakOf(const PeakKernel& kernel) {
  return {std::string(kernel.isa), std::string(kernel.format), std::string(kernel.operands)};
}

// Values in [-2, 2) of either sign, or any bytes for integers: zeros and powers of two would save
// power.
void FillRandom(std::span<std::byte> bytes, std::string_view format) {
  uint32_t state = 0x9e3779b9;  // xorshift32
  for (size_t at = 0; at + sizeof(uint32_t) <= bytes.size(); at += sizeof(uint32_t)) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    uint32_t word = state;
    // Sign, lowest bit of the exponent, mantissa; the exponent's other bits are those of 1.
    if (format == "f32") word = (state & 0x80ffffff) | 0x3f000000;
    if (format == "bf16") word = (state & 0x80ff80ff) | 0x3f003f00;
    std::memcpy(bytes.data() + at, &word, sizeof(word));
  }
}

// The number of steps that take kChunkSeconds on one thread.
int64_t StepsOfChunk(const PeakKernel& kernel, const std::byte* operands) {
  int64_t steps = 256;
  while (true) {
    const Clock::time_point start = Clock::now();
    kernel.run(operands, steps);
    const double seconds = Seconds(start);
    if (seconds >= kChunkSeconds) return steps;
    // At most fourfold: the CPU raises its clock during the first runs.
    const double factor = std::min(4.0, 1.1 * kChunkSeconds / std::max(seconds, 1e-7));
    steps = static_cast<int64_t>(static_cast<double>(steps) * std::max(factor, 1.1)) + 1;
  }
}

}  // namespace

const PeakKernel& PortablePeak() { return kPortable; }

std::vector<Peak> PresentPeaks(const Capabilities& caps) {
  std::vector<Peak> peaks;
  for (const PeakKernel* kernel : PresentKernels(caps)) peaks.push_back(PeakOf(*kernel));
  return peaks;
}

StatusOr<double> MeasurePeak(const Capabilities& caps, const Peak& peak, ThreadPool& pool,
                             double seconds) {
  const std::vector<const PeakKernel*> present = PresentKernels(caps);
  const auto found = std::find_if(present.begin(), present.end(),
                                  [&](const PeakKernel* k) { return PeakOf(*k) == peak; });
  if (found == present.end()) {
    return Status(StatusCode::kNotFound, "this CPU has no " + peak.isa + " instructions for " +
                                             peak.format + " operands from " + peak.operands);
  }
  const PeakKernel& kernel = **found;
  // Each thread's operands begin at a page boundary.
  const int64_t stride = (kernel.operand_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  const std::optional<LargeBuffer> buffer = LargeBuffer::Make(stride * pool.num_threads());
  if (!buffer) return Status(StatusCode::kResourceExhausted, "no memory for the operands");
  FillRandom(buffer->bytes(), kernel.format);
  const int64_t steps = StepsOfChunk(kernel, buffer->bytes().data());
  const int64_t chunks = pool.num_threads() * 4;
  std::vector<double> done(chunks);  // [i] written by the thread of chunk i
  double best = 0;
  const Clock::time_point begin = Clock::now();
  do {
    const Clock::time_point start = Clock::now();
    pool.ParallelFor(chunks, 1, [&](int64_t first, int64_t last, int worker) {
      const std::byte* operands = buffer->bytes().data() + worker * stride;
      for (int64_t i = first; i < last; ++i) done[i] = kernel.run(operands, steps);
    });
    best = std::max(best, done[0] * static_cast<double>(chunks) / Seconds(start));
  } while (Seconds(begin) < seconds);
  return best;
}

double MeasureFlops(const Capabilities& caps, ThreadPool& pool) {
  double best = 0;
  for (const Peak& peak : PresentPeaks(caps)) {
    if (peak.format != "f32") continue;
    const StatusOr<double> rate = MeasurePeak(caps, peak, pool, 0.05);
    if (rate.ok()) best = std::max(best, *rate);
  }
  return best;
}

}  // namespace pagemill::device
