#include "cc/ops/conformance.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "cc/base/status.h"
#include "cc/device/testing/emulated_cpu.h"
#include "cc/ops/block_format/block_layout.h"
#include "cc/tensor/float16.h"
#include "cc/tensor/float8.h"

namespace pagemill::ops::conformance {
namespace {

constexpr int64_t kAlignment = 64;    // of workspaces, and of tensors except misalign_bytes
constexpr int64_t kGuardBytes = 128;  // on either side: two cache lines, more than any vector store
constexpr uint8_t kGuard = 0xA5;

// First address in `memory` with kGuardBytes before it that is `misalign` past a boundary.
uint8_t* PlaceAfterGuard(std::vector<uint8_t>& memory, int64_t misalign) {
  const uintptr_t start = reinterpret_cast<uintptr_t>(memory.data()) + kGuardBytes;
  const uintptr_t aligned = (start + kAlignment - 1) / kAlignment * kAlignment;
  return memory.data() + (aligned - reinterpret_cast<uintptr_t>(memory.data())) + misalign;
}

bool IsGuard(const uint8_t* begin, const uint8_t* end) {
  return std::all_of(begin, end, [](uint8_t b) { return b == kGuard; });
}

// Every NaN becomes that of a positive quiet one: which of them a conversion gives is the
// processor's choice. Bits above kInfinity, without the sign, are NaN.
template <typename Bits, Bits kInfinity, Bits kNan>
void MakeNansEqual(std::vector<uint8_t>& bytes) {
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  for (size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, &bytes[at], sizeof(Bits));
    if ((bits & kMagnitude) > kInfinity) bits = kNan;
    std::memcpy(&bytes[at], &bits, sizeof(Bits));
  }
}

// Writes one element. Unaligned stores, since tests misalign on purpose.
void StoreElement(DType dtype, uint8_t* at, float value) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(at, &value, 4);
      return;
    case DType::kBF16: {
      const uint16_t bits = FloatToBf16(value);
      std::memcpy(at, &bits, 2);
      return;
    }
    case DType::kF16: {
      const uint16_t bits = FloatToF16(value);
      std::memcpy(at, &bits, 2);
      return;
    }
    case DType::kI32: {
      const int32_t integer = static_cast<int32_t>(value);
      std::memcpy(at, &integer, 4);
      return;
    }
    case DType::kI8:
      *at = static_cast<uint8_t>(static_cast<int8_t>(value));
      return;
    case DType::kU8:
      *at = static_cast<uint8_t>(value);
      return;
    case DType::kF8E4M3:
      *at = FloatToF8E4M3(value);
      return;
    default:
      CheckFailed(__FILE__, __LINE__, "StoreElement of a block format");
  }
}

float LoadElement(DType dtype, const uint8_t* at) {
  switch (dtype) {
    case DType::kF32: {
      float value;
      std::memcpy(&value, at, 4);
      return value;
    }
    case DType::kBF16:
    case DType::kF16: {
      uint16_t bits;
      std::memcpy(&bits, at, 2);
      return dtype == DType::kBF16 ? Bf16ToFloat(bits) : F16ToFloat(bits);
    }
    case DType::kI32: {
      int32_t integer;
      std::memcpy(&integer, at, 4);
      return static_cast<float>(integer);
    }
    case DType::kI8:
      return static_cast<float>(static_cast<int8_t>(*at));
    case DType::kU8:
      return static_cast<float>(*at);
    case DType::kF8E4M3:
      return F8E4M3ToFloat(*at);
    default:
      CheckFailed(__FILE__, __LINE__, "LoadElement of a block format");
  }
}

// Offsets of a block's f16 scales, and the largest |integer| that they multiply.
struct BlockScales {
  int32_t scale_offset;
  int32_t minimum_offset;  // -1: none
  float scale_range;
  float minimum_range;
};

BlockScales ScalesOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return {0, -1, 8, 1};
    case DType::kQ4_1:
      return {0, 2, 15, 1};
    case DType::kQ5_0:
      return {0, -1, 16, 1};
    case DType::kQ8_0:
      return {0, -1, 128, 1};
    case DType::kQ4_K:
      return {0, 2, 63 * 15, 63};
    case DType::kQ5_K:
      return {0, 2, 63 * 31, 63};
    case DType::kQ6_K:
      return {208, -1, 128 * 32, 1};
    case DType::kQ3_K:
      return {108, -1, 32 * 4, 1};
    case DType::kIQ4_NL:
      return {0, -1, 127, 1};
    default:
      CheckFailed(__FILE__, __LINE__, "ScalesOf a type without blocks");
  }
}

// Scales of mxfp4 are powers of two, and its largest integer is 12.
void ScaleMxfp4(std::span<uint8_t> row, Random& random, float magnitude) {
  const int largest = std::ilogb(magnitude / 12) + 128;
  for (size_t block = 0; block < row.size(); block += Info(DType::kMxfp4).block_bytes) {
    row[block] = static_cast<uint8_t>(random.Int(largest - 2, largest));
  }
}

void FillBlocks(DType dtype, std::span<uint8_t> row, Random& random, float magnitude) {
  for (uint8_t& byte : row) byte = static_cast<uint8_t>(random.Next());
  if (dtype == DType::kMxfp4) return ScaleMxfp4(row, random, magnitude);
  const BlockScales scales = ScalesOf(dtype);
  for (size_t block = 0; block < row.size(); block += Info(dtype).block_bytes) {
    const float sign = random.Int(0, 7) == 0 ? -1.f : 1.f;
    const float scale = sign * random.Uniform(0.25f, 1.f) * magnitude / scales.scale_range;
    StoreLe16(&row[block + scales.scale_offset], FloatToF16(scale));
    if (scales.minimum_offset < 0) continue;
    const float minimum = random.Uniform(-1.f, 1.f) * magnitude / scales.minimum_range;
    StoreLe16(&row[block + scales.minimum_offset], FloatToF16(minimum));
  }
}

}  // namespace

float Random::Normal() {
  float sum = -6.f;  // Irwin-Hall of order 12
  for (int i = 0; i < 12; ++i) sum += Uniform(0.f, 1.f);
  return sum;
}

TestTensor::TestTensor(DType dtype, std::span<const int64_t> dims,
                       const TestTensorOptions& options) {
  view_.dtype = dtype;
  for (int64_t d : dims) view_.shape[static_cast<size_t>(view_.rank++)] = d;
  row_bytes_ = RowBytes(dtype, view_.RowElements());
  view_.row_stride_bytes = row_bytes_;
  view_.row_stride_bytes += options.row_padding_bytes;
  const int64_t rows = view_.rank == 0 ? 1 : view_.shape[0];
  memory_.assign(
      rows * view_.row_stride_bytes + 2 * (kGuardBytes + kAlignment) + options.misalign_bytes,
      kGuard);
  view_.data = PlaceAfterGuard(memory_, options.misalign_bytes);
  Poison();
}

void TestTensor::Poison() {
  std::vector<uint8_t> poison(static_cast<size_t>(row_bytes_), 0xff);  // 0xffff is a NaN in f16
  if (!IsBlockFormat(view_.dtype) && view_.dtype != DType::kU4 && view_.dtype != DType::kK8V4) {
    const int64_t size = Info(view_.dtype).block_bytes;
    const bool integer =
        view_.dtype == DType::kI32 || view_.dtype == DType::kI8 || view_.dtype == DType::kU8;
    const float value = view_.dtype == DType::kI32 ? -0x1p31f
                        : integer                  ? 85.f
                                                   : std::numeric_limits<float>::quiet_NaN();
    for (int64_t at = 0; at < row_bytes_; at += size) {
      StoreElement(view_.dtype, poison.data() + at, value);
    }
  }
  for (int64_t i = 0; i < view_.shape[0]; ++i) {
    std::copy(poison.begin(), poison.end(), view_.Row<uint8_t>(i));
  }
}

void TestTensor::FillUniform(Random& random, float low, float high) {
  const bool integer =
      view_.dtype == DType::kI32 || view_.dtype == DType::kI8 || view_.dtype == DType::kU8;
  for (int64_t i = 0; i < view_.shape[0]; ++i) {
    uint8_t* row = view_.Row<uint8_t>(i);
    if (IsBlockFormat(view_.dtype)) {
      FillBlocks(view_.dtype, {row, static_cast<size_t>(row_bytes_)}, random, (high - low) / 2);
      continue;
    }
    const int64_t size = Info(view_.dtype).block_bytes;
    for (int64_t at = 0; at < row_bytes_; at += size) {
      const float value = integer
                              ? static_cast<float>(random.Int(std::lround(low), std::lround(high)))
                              : random.Uniform(low, high);
      StoreElement(view_.dtype, row + at, value);
    }
  }
}

void TestTensor::Set(std::span<const float> values) {
  PAGEMILL_CHECK(static_cast<int64_t>(values.size()) == view_.Elements());
  const int64_t size = Info(view_.dtype).block_bytes;
  const float* value = values.data();
  for (int64_t i = 0; i < view_.shape[0]; ++i) {
    uint8_t* row = view_.Row<uint8_t>(i);
    for (int64_t at = 0; at < row_bytes_; at += size) StoreElement(view_.dtype, row + at, *value++);
  }
}

void TestTensor::SetInt(std::span<const int32_t> values) {
  PAGEMILL_CHECK(static_cast<int64_t>(values.size()) == view_.Elements() &&
                 view_.dtype == DType::kI32);
  const int64_t columns = view_.RowElements();
  for (int64_t i = 0; i < view_.Elements(); ++i) {
    std::memcpy(view_.Row<uint8_t>(i / columns) + i % columns * 4, &values[i], 4);
  }
}

std::vector<float> TestTensor::ToFloat() const {
  std::vector<float> values(static_cast<size_t>(view_.Elements()));
  const int64_t size = Info(view_.dtype).block_bytes;
  float* value = values.data();
  for (int64_t i = 0; i < view_.shape[0]; ++i) {
    const uint8_t* row = view_.Row<uint8_t>(i);
    for (int64_t at = 0; at < row_bytes_; at += size) *value++ = LoadElement(view_.dtype, row + at);
  }
  return values;
}

std::vector<uint8_t> TestTensor::Bytes() const {
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < view_.shape[0]; ++i) {
    const uint8_t* row = view_.Row<uint8_t>(i);
    bytes.insert(bytes.end(), row, row + row_bytes_);
  }
  if (view_.dtype == DType::kF32) MakeNansEqual<uint32_t, 0x7f800000u, 0x7fc00000u>(bytes);
  if (view_.dtype == DType::kBF16) MakeNansEqual<uint16_t, 0x7f80, 0x7fc0>(bytes);
  if (view_.dtype == DType::kF16) MakeNansEqual<uint16_t, 0x7c00, 0x7e00>(bytes);
  return bytes;
}

bool TestTensor::GuardsIntact() const {
  const uint8_t* at = memory_.data();
  for (int64_t i = 0; i < view_.shape[0]; ++i) {
    const uint8_t* row = view_.Row<uint8_t>(i);
    if (!IsGuard(at, row)) return false;
    at = row + row_bytes_;
  }
  return IsGuard(at, memory_.data() + memory_.size());
}

std::vector<const Kernel*> SupportedKernels(const OpDefinition& op,
                                            const device::Capabilities& caps, const OpCall& call) {
  std::vector<const Kernel*> kernels;
  for (const Kernel& kernel : op.kernels) {
    if (kernel.supports(caps, call)) kernels.push_back(&kernel);
  }
  return kernels;
}

std::vector<int32_t> ThreadCounts(const device::Capabilities& caps) {
  if (caps.kind != device::DeviceKind::kCpu || device::IsEmulatedCpu()) return {1};
  return {1, 3};
}

std::vector<int32_t> FewIfEmulated(std::initializer_list<int32_t> values) {
  if (device::IsEmulatedCpu()) return {*values.begin(), *(values.end() - 1)};
  return values;
}

const Kernel& ReferenceKernel(const OpDefinition& op) {
  for (const Kernel& kernel : op.kernels) {
    if (kernel.name == "reference") return kernel;
  }
  CheckFailed(__FILE__, __LINE__, "op without a reference kernel: " + std::string(op.op));
}

PackedCall::PackedCall(const Kernel& kernel, const OpCall& call, device::ThreadPool& pool)
    : inputs_(call.inputs.begin(), call.inputs.end()), call_(call) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const WeightPacking* packing = PackingOf(kernel, i);
    if (packing == nullptr) continue;
    const int64_t bytes = packing->bytes(inputs_[i]);
    EXPECT_EQ(bytes % kAlignment, 0) << kernel.op << "/" << kernel.name;
    std::vector<uint8_t>& memory =
        copies_.emplace_back(bytes + 2 * (kGuardBytes + kAlignment), kGuard);
    uint8_t* packed = PlaceAfterGuard(memory, 0);
    const Status done = packing->pack(inputs_[i], reinterpret_cast<std::byte*>(packed), pool);
    EXPECT_TRUE(done.ok()) << done.ToString();
    EXPECT_TRUE(IsGuard(memory.data(), packed)) << kernel.op << "/" << kernel.name;
    EXPECT_TRUE(IsGuard(packed + bytes, memory.data() + memory.size()))
        << kernel.op << "/" << kernel.name << " packed past " << bytes << " bytes";
    inputs_[i] = PackedView(*packing, inputs_[i]);
    inputs_[i].data = packed;
  }
  call_.inputs = inputs_;
}

void RunKernel(const Kernel& kernel, const OpCall& stored, device::ThreadPool& pool) {
  const PackedCall packed(kernel, stored, pool);
  const OpCall& call = packed.call();
  const int64_t bytes =
      kernel.workspace_bytes == nullptr ? 0 : kernel.workspace_bytes(call, pool.num_threads());
  std::vector<uint8_t> memory(bytes + 2 * (kGuardBytes + kAlignment), kGuard);
  uint8_t* workspace = PlaceAfterGuard(memory, 0);
  std::memset(workspace, 0xff, bytes);  // NaN in every floating point format
  KernelContext context{&pool,
                        {reinterpret_cast<std::byte*>(workspace), static_cast<size_t>(bytes)}};
  const int64_t plan_bytes = kernel.plan == nullptr ? 0 : kernel.plan->bytes(call);
  std::vector<uint8_t> plan_memory(plan_bytes + 2 * (kGuardBytes + kAlignment), kGuard);
  uint8_t* const plan = PlaceAfterGuard(plan_memory, 0);
  context.plan = reinterpret_cast<std::byte*>(plan);
  if (kernel.plan != nullptr) {
    kernel.plan->make(call, {reinterpret_cast<std::byte*>(plan), static_cast<size_t>(plan_bytes)});
    EXPECT_TRUE(IsGuard(plan + plan_bytes, plan_memory.data() + plan_memory.size()))
        << kernel.op << "/" << kernel.name << " wrote past its plan of " << plan_bytes << " bytes";
  }
  kernel.run(call, context);
  EXPECT_TRUE(IsGuard(memory.data(), workspace)) << kernel.op << "/" << kernel.name;
  EXPECT_TRUE(IsGuard(workspace + bytes, memory.data() + memory.size()))
      << kernel.op << "/" << kernel.name << " wrote past its workspace of " << bytes << " bytes";
}

::testing::AssertionResult AllClose(std::span<const float> actual, std::span<const float> expected,
                                    const Tolerance& tolerance) {
  if (actual.size() != expected.size()) {
    return ::testing::AssertionFailure()
           << actual.size() << " elements, expected " << expected.size();
  }
  size_t failures = 0;
  size_t worst = 0;
  double worst_excess = -1;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = actual[i];
    const double e = expected[i];
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    const double excess = std::abs(a - e) - (tolerance.abs + tolerance.rel * std::abs(e));
    if (excess <= 0) continue;
    ++failures;
    const double rank = std::isfinite(excess) ? excess : std::numeric_limits<double>::infinity();
    if (rank > worst_excess) {
      worst_excess = rank;
      worst = i;
    }
  }
  if (failures == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << failures << " of " << actual.size() << " elements out of tolerance, worst [" << worst
         << "]: got " << actual[worst] << ", expected " << expected[worst] << ", " << worst_excess
         << " past abs " << tolerance.abs << " + rel " << tolerance.rel;
}

::testing::AssertionResult BitEqual(std::span<const float> actual,
                                    std::span<const float> expected) {
  if (actual.size() != expected.size()) {
    return ::testing::AssertionFailure()
           << actual.size() << " elements, expected " << expected.size();
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::bit_cast<uint32_t>(actual[i]) != std::bit_cast<uint32_t>(expected[i])) {
      return ::testing::AssertionFailure()
             << "element [" << i << "] differs: " << actual[i] << " and " << expected[i]
             << ", difference " << actual[i] - expected[i];
    }
  }
  return ::testing::AssertionSuccess();
}

double NormalizedSquaredError(std::span<const float> actual, std::span<const float> expected) {
  PAGEMILL_CHECK(actual.size() == expected.size());
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double difference = static_cast<double>(actual[i]) - expected[i];
    error += difference * difference;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  if (error == 0) return 0;
  return error / norm;
}

}  // namespace pagemill::ops::conformance
