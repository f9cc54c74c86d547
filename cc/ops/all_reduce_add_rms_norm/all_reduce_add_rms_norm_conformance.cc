#include "cc/ops/all_reduce_add_rms_norm/all_reduce_add_rms_norm_conformance.h"

#include <utility>
#include <vector>

#include "cc/ops/group_conformance.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {
namespace {

using conformance::GroupPart;
using conformance::TestTensor;

struct Shape {
  int64_t rows, size;
};
// Which tensors have odd addresses and strides.
struct Alignment {
  bool odd_x, odd_others;
};

// The operands of a rank: x is its own, residual and w are those of all.
GroupPart PartOf(int32_t rank, DType dtype, const Shape& shape, const Alignment& alignment) {
  const conformance::TestTensorOptions others =
      conformance::GroupTensorOptions(alignment.odd_others);
  const auto [rows, size] = shape;
  GroupPart part{TestTensor(dtype, {rows, size}, conformance::GroupTensorOptions(alignment.odd_x)),
                 TestTensor(dtype, {rows, size}, others)};
  conformance::Random own(static_cast<uint64_t>(rank + 1)), shared(99);
  part.x.FillUniform(own, -2, 2);
  part.more_inputs.emplace_back(dtype, std::initializer_list<int64_t>{rows, size}, others);
  part.more_inputs.emplace_back(DType::kF32, std::initializer_list<int64_t>{size});
  for (TestTensor& input : part.more_inputs) input.FillUniform(shared, -2, 2);
  for (int i = 0; i < 2; ++i) {
    part.more_outputs.emplace_back(dtype, std::initializer_list<int64_t>{rows, size}, others);
  }
  return part;
}

// The sum over the ranks in rank order, in f32.
std::vector<float> SumOf(const std::vector<GroupPart>& parts) {
  std::vector<float> sum = parts[0].x.ToFloat();
  for (size_t r = 1; r < parts.size(); ++r) {
    const std::vector<float> x = parts[r].x.ToFloat();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
  }
  return sum;
}

// Runs the kernel in a group of one.
void RunAlone(const Kernel& kernel, GroupPart& part, Attributes attributes) {
  attributes.Set("ranks", 1);
  const TensorView inputs[] = {part.x.view(), part.more_inputs[0].view(),
                               part.more_inputs[1].view()};
  const TensorView outputs[] = {part.y.view(), part.more_outputs[0].view(),
                                part.more_outputs[1].view()};
  device::ThreadPool pool({.num_threads = 1});
  conformance::RunKernel(
      kernel, {.inputs = inputs, .outputs = outputs, .attributes = &attributes}, pool);
}

// Ranks have the bits that one rank has whose x is the sum.
void CheckRanks(const Kernel& kernel, DType dtype, int32_t ranks, const Shape& shape,
                const Alignment& alignment) {
  std::vector<GroupPart> parts;
  for (int32_t r = 0; r < ranks; ++r) parts.push_back(PartOf(r, dtype, shape, alignment));
  Attributes attributes;
  attributes.Set("eps", 1e-5);
  attributes.Set("weight_offset", 1);
  GroupPart alone = PartOf(0, dtype, shape, alignment);
  alone.x.Set(SumOf(parts));
  RunAlone(kernel, alone, attributes);
  conformance::CheckGroup(kernel, parts, alone.y.ToFloat(), attributes);
  for (const GroupPart& part : parts) {
    for (size_t i = 0; i < part.more_outputs.size(); ++i) {
      EXPECT_TRUE(conformance::BitEqual(part.more_outputs[i].ToFloat(),
                                        alone.more_outputs[i].ToFloat()))
          << kernel.name << " output " << i + 1;
    }
  }
}

void CheckGroups(const Kernel& kernel, DType dtype) {
  for (int32_t ranks : {2, 3}) {
    // The last has more rows than a GPU's kernel has blocks, and more than its inbox has room for.
    for (const Shape& shape : {Shape{0, 37}, {7, 37}, {7, 64}, {1, 577}, {70, 8}}) {
      for (const Alignment& alignment :
           {Alignment{true, true}, Alignment{false, false}, Alignment{true, false}}) {
        CheckRanks(kernel, dtype, ranks, shape, alignment);
      }
    }
  }
}

}  // namespace

void CheckAllReduceAddRmsNormConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int64_t size : {1, 17, 64, 576}) {
    conformance::RowCase c{.op = op};
    c.AddRows({9, size});
    c.AddRows({9, size});
    c.AddShared({size});
    c.act_inputs = 0;  // the sum is rounded before it is normalized
    for (int i = 0; i < 3; ++i) c.AddOutput({9, size});
    c.attributes.Set("ranks", 1);
    c.attributes.Set("eps", 1e-5);
    c.attributes.Set("weight_offset", 1);
    c.tolerance = {.abs = 1e-6, .rel = 2e-6};  // as rms_norm
    CheckRowCase(c, caps);
  }
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const TensorView x = TensorView::Dense(nullptr, dtype, {1, 1});
    const Attributes attributes;
    const OpCall call = {.inputs = {&x, 1}, .outputs = {&x, 1}, .attributes = &attributes};
    for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
      CheckGroups(*kernel, dtype);
    }
  }
}

}  // namespace pagemill::ops
