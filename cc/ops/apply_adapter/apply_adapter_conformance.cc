// What every kernel of `apply_adapter` has to pass: closeness to the reference within the
// contract's bound for odd sizes, every rank, both types of matrices, with gain and offset and
// without; the same bits for any number of threads and for each row alone; in place, rows without
// an adapter keep their bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "cc/ops/act_conformance.h"
#include "cc/ops/apply_adapter/apply_adapter.h"
#include "cc/ops/apply_adapter/packed_adapter.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

using conformance::Random;
using conformance::TestTensor;

struct AdapterCase {
  int64_t rows, in, out, rank;
  DType dtype = DType::kF32;
  bool scales = false;  // with gain and offset
};

constexpr int64_t kSlots = 3;

PackedAdapter MakeAdapter(const AdapterCase& c, int64_t rank, Random& random) {
  TestTensor a(c.dtype, {rank, c.in}, {.misalign_bytes = 4, .row_padding_bytes = 4});
  TestTensor b(c.dtype, {c.out, rank}, {.misalign_bytes = 8});
  TestTensor gain(DType::kF32, {c.out}), offset(DType::kF32, {c.out});
  a.FillUniform(random, -1, 1);
  b.FillUniform(random, -1, 1);
  gain.FillUniform(random, 0.5, 2);
  offset.FillUniform(random, -1, 1);
  AdapterTensors tensors{.a = a.view(), .b = b.view(), .scale = 1.5f, .gain = {}, .offset = {}};
  if (c.scales) tensors.gain = gain.view(), tensors.offset = offset.view();
  StatusOr<PackedAdapter> packed = PackedAdapter::Make(tensors, c.out, c.in);
  EXPECT_TRUE(packed.ok()) << packed.status().ToString();
  return std::move(*packed);
}

// Rows in blocks of several lengths with each adapter, with the empty entry, and with none.
std::vector<int32_t> MakeSlots(int64_t rows) {
  constexpr int32_t kLengths[] = {5, 1, 2, 4, 3};
  std::vector<int32_t> slots;
  for (int32_t i = 0; static_cast<int64_t>(slots.size()) < rows; ++i) {
    slots.insert(slots.end(), static_cast<size_t>(kLengths[i % 5]), (i + 1) % (kSlots + 2) - 1);
  }
  slots.resize(static_cast<size_t>(rows));
  return slots;
}

void CheckAdapter(const OpDefinition& op, const device::Capabilities& caps, const AdapterCase& c) {
  SCOPED_TRACE(::testing::Message() << c.rows << " rows, " << c.in << " to " << c.out << ", rank "
                                    << c.rank << " " << Info(c.dtype).name);
  Random random(3);
  std::vector<PackedAdapter> packed;
  for (int64_t i = 0; i < kSlots; ++i) {
    packed.push_back(MakeAdapter(c, std::max<int64_t>(1, c.rank - i), random));
  }
  std::vector<AdapterMatrices> table;
  for (const PackedAdapter& adapter : packed) table.push_back(adapter.matrices());
  table.emplace_back();  // the empty entry
  const std::vector<int32_t> slots = MakeSlots(c.rows);

  TestTensor y(DType::kF32, {c.rows, c.out}, {.misalign_bytes = 4, .row_padding_bytes = 4});
  TestTensor x(DType::kF32, {c.rows, c.in}, {.misalign_bytes = 4, .row_padding_bytes = 8});
  TestTensor ids(DType::kI32, {c.rows}, {.misalign_bytes = 4});
  TestTensor z(DType::kF32, {c.rows, c.out}, {.misalign_bytes = 4, .row_padding_bytes = 4});
  y.FillUniform(random, -1, 1);
  x.FillUniform(random, -1, 1);
  ids.SetInt(slots);
  TensorView entries;
  entries.data = table.data();
  entries.dtype = DType::kI8;
  entries.rank = 2;
  entries.shape = {c.out, c.in};
  entries.row_stride_bytes = c.in;

  const Attributes attributes;
  const TensorView inputs[] = {y.view(), x.view(), ids.view(), entries};
  const TensorView outputs[] = {z.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  device::ThreadPool one({.num_threads = 1}), three({.num_threads = 3});

  conformance::RunKernel(conformance::ReferenceKernel(op), call, one);
  const std::vector<float> expected = z.ToFloat();
  // With |x|, |y|, |a|, |b| <= 1, gain <= 2 and offset <= 1.
  const double scale = 3 + 1.5 * static_cast<double>(c.rank * c.in);
  const conformance::Tolerance tolerance = {.abs = ApplyAdapterErrorBound(c.in, c.rank) * scale};
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    SCOPED_TRACE(kernel->name);
    z.Poison();
    conformance::RunKernel(*kernel, call, one);
    EXPECT_TRUE(z.GuardsIntact());
    const std::vector<float> got = z.ToFloat();
    EXPECT_TRUE(conformance::AllClose(got, expected, tolerance));
    z.Poison();
    conformance::RunKernel(*kernel, call, three);
    EXPECT_TRUE(conformance::BitEqual(z.ToFloat(), got)) << "with 3 threads";

    for (int64_t n = 0; n < c.rows; n += 5) {
      const auto row = [n](TensorView view) {
        view.data = view.Row<std::byte>(n);
        view.shape[0] = 1;
        return view;
      };
      const TensorView in[] = {row(inputs[0]), row(inputs[1]), row(inputs[2]), entries};
      const TensorView out[] = {row(outputs[0])};
      z.Poison();
      conformance::RunKernel(
          *kernel, {.inputs = in, .outputs = out, .attributes = &attributes}, three);
      const std::vector<float> alone(out[0].Row<float>(0), out[0].Row<float>(0) + c.out);
      EXPECT_TRUE(conformance::BitEqual(
          alone, std::span(got).subspan(static_cast<size_t>(n * c.out), alone.size())))
          << "row " << n << " alone";
    }

    const std::vector<float> before = y.ToFloat();
    const TensorView in_place[] = {y.view()};
    conformance::RunKernel(
        *kernel, {.inputs = inputs, .outputs = in_place, .attributes = &attributes}, three);
    EXPECT_TRUE(conformance::BitEqual(y.ToFloat(), got)) << "in place";
    EXPECT_TRUE(y.GuardsIntact());
    y.Set(before);
  }
  conformance::CheckActTypes(
      {.op = op, .caps = caps, .call = call, .act_inputs = 0b11, .tolerance = tolerance});
}

}  // namespace

void CheckApplyAdapterConformance(const OpDefinition& op, const device::Capabilities& caps) {
  CheckAdapter(op, caps, {.rows = 0, .in = 5, .out = 7, .rank = 2});
  CheckAdapter(op, caps, {.rows = 1, .in = 1, .out = 1, .rank = 1});
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (bool scales : {false, true}) {
      CheckAdapter(op, caps, {2, 33, 300, 4, dtype, scales});
      CheckAdapter(op, caps, {37, 65, 47, 8, dtype, scales});
      CheckAdapter(op, caps, {21, 130, 129, 17, dtype, scales});
    }
  }
  CheckAdapter(op, caps, {.rows = 5, .in = 9, .out = 33, .rank = kMaxAdapterRank});
}

}  // namespace pagemill::ops
