// What every kernel of `apply_adapter` has to pass: closeness to the reference within the
// contract's bound for odd sizes, every rank, both types of matrices, with gain and offset and
// without, for ids, selected rows, experts and several layers; the same bits for any number of
// threads and for each row alone; in place, rows without an adapter keep their bits; without slots,
// all rows do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
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
  bool ids = false;     // instead of rows of x
  bool selects = false;
  int64_t experts = 0;   // 0: none
  int64_t choices = 1;   // of experts
  bool shared = false;   // x is one row for all choices of a token
  size_t layers = 1;     // the i-th has i more columns

  int64_t entries() const { return std::max<int64_t>(1, experts); }
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

// One layer of a case: its adapters and y and z.
struct Layer {
  Layer(const AdapterCase& c, int64_t columns, Random& random)
      : out(columns),
        y(DType::kF32, {c.rows, c.choices, out}, {.misalign_bytes = 4, .row_padding_bytes = 4}),
        z(DType::kF32, {c.rows, c.choices, out}, {.misalign_bytes = 4, .row_padding_bytes = 4}) {
    AdapterCase own = c;
    own.out = columns;
    for (int64_t i = 0; i < kSlots * c.entries(); ++i) {
      packed.push_back(MakeAdapter(own, std::max<int64_t>(1, c.rank - i), random));
    }
    for (const PackedAdapter& adapter : packed) table.push_back(adapter.matrices());
    table.resize(table.size() + static_cast<size_t>(c.entries()));  // the empty slot
    if (c.layers > 1) table[static_cast<size_t>(c.entries())] = {};
    y.FillUniform(random, -1, 1);
    view.data = table.data();
    view.dtype = DType::kI8;
    view.rank = c.experts > 0 ? 3 : 2;
    view.shape = {out, c.in};
    if (c.experts > 0) view.shape = {c.experts, out, c.in};
    view.row_stride_bytes = view.RowElements();
  }

  int64_t out;
  std::vector<PackedAdapter> packed;
  std::vector<AdapterMatrices> table;
  TensorView view;
  TestTensor y, z;
};

// The operands of a case; every kernel gets the same.
struct Operands {
  explicit Operands(const AdapterCase& c)
      : x(c.ids ? TestTensor(DType::kI32, {c.rows}, {.misalign_bytes = 4})
                : TestTensor(DType::kF32, {c.rows, c.shared ? 1 : c.choices, c.in},
                             {.misalign_bytes = 4, .row_padding_bytes = 8})),
        slots(DType::kI32, {c.rows}, {.misalign_bytes = 4}),
        rows(DType::kI32, {c.rows}, {.misalign_bytes = 4}),
        experts(DType::kI32, {c.rows, c.choices}, {.misalign_bytes = 4}) {
    Random random(3);
    const auto fill = [](TestTensor& tensor, int64_t count, auto&& value) {
      std::vector<int32_t> values;
      for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<int32_t>(value(i)));
      tensor.SetInt(values);
    };
    if (c.ids) fill(x, c.rows, [&](int64_t n) { return n * 5 % c.in; });
    if (!c.ids) x.FillUniform(random, -1, 1);
    slots.SetInt(MakeSlots(c.rows));
    fill(rows, c.rows, [&](int64_t n) { return n * 7 % c.rows; });
    fill(experts, c.rows * c.choices, [&](int64_t i) { return i * 3 % (c.experts + 2) - 1; });
    inputs = {x.view(), slots.view(), c.selects ? rows.view() : TensorView{},
              c.experts > 0 ? experts.view() : TensorView{}};
    for (size_t i = 0; i < c.layers; ++i) {
      layers.push_back(std::make_unique<Layer>(c, c.out + static_cast<int64_t>(i), random));
      inputs.push_back(layers.back()->y.view());
      inputs.push_back(layers.back()->view);
      outputs.push_back(layers.back()->z.view());
      in_place.push_back(layers.back()->y.view());
    }
  }

  // The results, one layer after the other.
  std::vector<float> Run(const Kernel& kernel, device::ThreadPool& pool) {
    for (const auto& layer : layers) layer->z.Poison();
    conformance::RunKernel(kernel, call(), pool);
    std::vector<float> results;
    for (const auto& layer : layers) {
      EXPECT_TRUE(layer->z.GuardsIntact());
      const std::vector<float> z = layer->z.ToFloat();
      results.insert(results.end(), z.begin(), z.end());
    }
    return results;
  }
  OpCall call() const { return {.inputs = inputs, .outputs = outputs, .attributes = &attributes}; }

  TestTensor x, slots, rows, experts;
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<TensorView> inputs, outputs, in_place;
  Attributes attributes;
};

TensorView RowOf(TensorView view, int64_t row) {
  if (view.rank == 0) return view;
  view.data = view.Row<std::byte>(row);
  view.shape[0] = 1;
  return view;
}

// Each row of the first layer has the bits that it has in the whole call.
void CheckRowsAlone(const AdapterCase& c, Operands& operands, const Kernel& kernel,
                    device::ThreadPool& pool, const std::vector<float>& expected) {
  const int64_t size = c.choices * c.out;
  for (int64_t n = 0; n < c.rows; n += 5) {
    std::vector<TensorView> in = operands.inputs;
    const std::vector<TensorView> out = {RowOf(operands.outputs[0], n)};
    in.resize(apply_adapter::ResultOperand(1));
    for (size_t i = 0; i < in.size(); ++i) {
      if (i == apply_adapter::kSlots && c.selects) continue;
      if (i != apply_adapter::TableOperand(0)) in[i] = RowOf(in[i], n);
    }
    operands.layers[0]->z.Poison();
    conformance::RunKernel(
        kernel, {.inputs = in, .outputs = out, .attributes = &operands.attributes}, pool);
    const std::vector<float> alone(out[0].Row<float>(0), out[0].Row<float>(0) + size);
    EXPECT_TRUE(conformance::BitEqual(
        alone, std::span(expected).subspan(static_cast<size_t>(n * size), alone.size())))
        << "row " << n << " alone";
  }
}

void CheckInPlace(const AdapterCase& c, Operands& operands, const Kernel& kernel,
                  device::ThreadPool& pool, std::span<const float> expected) {
  std::vector<std::vector<float>> before;
  for (const auto& layer : operands.layers) before.push_back(layer->y.ToFloat());
  conformance::RunKernel(kernel,
                         {.inputs = operands.inputs,
                          .outputs = operands.in_place,
                          .attributes = &operands.attributes},
                         pool);
  for (size_t i = 0; i < c.layers; ++i) {
    Layer& layer = *operands.layers[i];
    EXPECT_TRUE(conformance::BitEqual(layer.y.ToFloat(), expected.first(before[i].size())))
        << "in place";
    EXPECT_TRUE(layer.y.GuardsIntact());
    expected = expected.subspan(before[i].size());
    layer.y.Set(before[i]);
  }
}

void CheckWithoutSlots(Operands& operands, const Kernel& kernel, device::ThreadPool& pool) {
  std::vector<float> expected;
  for (const auto& layer : operands.layers) {
    const std::vector<float> y = layer->y.ToFloat();
    expected.insert(expected.end(), y.begin(), y.end());
  }
  operands.inputs[apply_adapter::kSlots].data = nullptr;
  EXPECT_TRUE(conformance::BitEqual(operands.Run(kernel, pool), expected)) << "without slots";
  operands.inputs[apply_adapter::kSlots] = operands.slots.view();
}

void CheckAdapter(const OpDefinition& op, const device::Capabilities& caps, const AdapterCase& c) {
  SCOPED_TRACE(::testing::Message() << c.rows << " rows, " << c.in << " to " << c.out << ", rank "
                                    << c.rank << " " << Info(c.dtype).name << ", " << c.experts
                                    << " experts, " << c.layers << " layers");
  Operands operands(c);
  const OpCall call = operands.call();
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  device::ThreadPool one({.num_threads = 1}), three({.num_threads = 3});

  const std::vector<float> expected = operands.Run(conformance::ReferenceKernel(op), one);
  // With |x|, |y|, |a|, |b| <= 1, gain <= 2 and offset <= 1.
  const double scale = 3 + 1.5 * static_cast<double>(c.rank * c.in);
  const conformance::Tolerance tolerance = {.abs = ApplyAdapterErrorBound(c.in, c.rank) * scale};
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    SCOPED_TRACE(kernel->name);
    const std::vector<float> got = operands.Run(*kernel, one);
    EXPECT_TRUE(conformance::AllClose(got, expected, tolerance));
    EXPECT_TRUE(conformance::BitEqual(operands.Run(*kernel, three), got)) << "with 3 threads";
    CheckRowsAlone(c, operands, *kernel, three, got);
    CheckInPlace(c, operands, *kernel, three, got);
    CheckWithoutSlots(operands, *kernel, three);
  }
  if (c.ids) return;
  conformance::CheckActTypes({.op = op,
                              .caps = caps,
                              .call = call,
                              .act_inputs = 0b10101010001,
                              .tolerance = tolerance});
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
  CheckAdapter(op, caps, {.rows = 23, .in = 50, .out = 33, .rank = 5, .ids = true});
  CheckAdapter(op, caps, {9, 40, 70, 5, DType::kBF16, true, /*ids=*/true, /*selects=*/true});
  CheckAdapter(op, caps, {.rows = 9, .in = 40, .out = 70, .rank = 5, .selects = true});
  for (size_t layers : {2, 4}) {
    CheckAdapter(op, caps, {.rows = 3, .in = 40, .out = 70, .rank = 5, .layers = layers});
    CheckAdapter(op, caps, {.rows = 33, .in = 40, .out = 70, .rank = 5, .layers = layers});
  }
  for (bool shared : {false, true}) {
    for (int64_t rows : {2, 19}) {
      CheckAdapter(op, caps,
                   {.rows = rows,
                    .in = 33,
                    .out = 65,
                    .rank = 6,
                    .scales = shared,
                    .experts = 5,
                    .choices = 3,
                    .shared = shared,
                    .layers = shared ? size_t{2} : size_t{1}});
    }
  }
}

}  // namespace pagemill::ops
