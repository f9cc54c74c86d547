#include "cc/ops/grouped_linear/grouped_linear.h"

#include "cc/ops/linear/linear.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/grouped_linear/f8_group_matrix_cores.h"
#include "cuda/ops/grouped_linear/group_matrix_cores.h"
#include "cuda/ops/grouped_linear/group_tensor_cores.h"
#include "cuda/ops/grouped_linear/routed_rows.h"
#include "cuda/ops/grouped_linear/wgmma_groups.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/linear/converted_weights.h"
#include "cuda/ops/linear/f8_matrix_cores.h"
#include "cuda/ops/linear/f8_stages.h"
#include "cuda/ops/linear/matrix_cores.h"
#include "cuda/ops/linear/rounded_groups.h"
#include "cuda/ops/linear/row_products.h"
#include "cuda/ops/linear/tensor_cores.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {
namespace {

using ops::grouped_linear::WeightOperand;

// Block (group, outputs): some outputs of the rows of a group. `stacks` are matrices of experts.
template <typename T, typename W>
PAGEMILL_KERNEL MultiplyGroup(Routing routing, RoutedShape shape, Rows<const T> x, W stacks,
                              Rows<const float> biases, Rows<T> y) {
  const ExpertGroup group = routing.GroupAt(BlockIndex().x);
  if (group.count == 0) return;
  const int64_t choices = routing.ids.choices;
  const BlockOutputs<W> outputs(int64_t{BlockIndex().y} * BlockOutputs<W>::kCount, shape.outputs);
  const bool is_zero = group.expert == routing.ids.experts;
  const T* of_x[kRowsAtOnce];
  PAGEMILL_UNROLL
  for (int i = 0; i < kRowsAtOnce; ++i) {
    const int32_t row = routing.RowAt(group.begin + (i < group.count ? i : 0));
    of_x[i] = x[row / choices] + row % choices * shape.x_step;
  }
  float sums[kRowsAtOnce] = {};
  if (!is_zero) outputs.Multiply(of_x, group.count, stacks, group.expert, shape.columns, sums);
  if (!outputs.HasSums()) return;
  const int64_t m = outputs.own();
  PAGEMILL_UNROLL
  for (int i = 0; i < kRowsAtOnce; ++i) {
    if (i >= group.count) break;
    const int32_t row = routing.RowAt(group.begin + i);
    float sum = sums[i];
    if (!is_zero && biases.data != nullptr) sum += biases[group.expert][m];
    y[row / choices][row % choices * shape.y_step + m] = FromFloat<T>(sum);
  }
}

template <typename T>
void Multiply(const ops::OpCall& call, size_t output, const Routing& routing,
              device::Stream& stream) {
  const RoutedShape shape = RoutedShape::Of(call, output);
  WithWeights(call.inputs[WeightOperand(output)], [&]<typename W>(const W& stacks) {
    Launch(stream,
           {.blocks = {routing.num_groups, DivideUp(shape.outputs, BlockOutputs<W>::kCount)},
            .threads = {BlockOutputs<W>::kThreads}},
           MultiplyGroup<T, W>, routing, shape, RowsOf<const T>(call.inputs[0]), stacks,
           BiasesOf(call, output), RowsOf<T>(call.outputs[output]));
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const Routing routing = Route(call, kRowsAtOnce, context);
  WithActType(call.inputs[0].dtype, [&]<typename T>(T) {
    for (size_t i = 0; i < call.outputs.size(); ++i) Multiply<T>(call, i, routing, *context.stream);
  });
}

int64_t WorkspaceBytes(const ops::OpCall& call, int32_t) {
  return GroupArrays::Bytes(IdsOf(call), kRowsAtOnce);
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  const TensorView& w = call.inputs[WeightOperand(0)];
  return OnEveryGpu(caps, call) && AreReadable(w) && w.shape[0] <= kMaxExperts;
}

// Rows that no vector load can read go to the other kernel.
template <auto& kMultiply>
void RunAligned(const ops::OpCall& call, ops::KernelContext& context) {
  bool are_aligned = HasAlignedRows(call.inputs[0]);
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    are_aligned = are_aligned && AreReadOnTensorCores(call.inputs[WeightOperand(i)]);
  }
  (are_aligned ? kMultiply : Run)(call, context);
}

bool SupportsTensorCores(const device::Capabilities& caps, const ops::OpCall& call) {
  return Supports(caps, call) &&
         FitsTensorCores(caps, call.inputs[0], call.inputs[WeightOperand(0)]);
}

#if !defined(__CUDACC__)
template <int kLanes>
bool SupportsMatrixCores(const device::Capabilities& caps, const ops::OpCall& call) {
  return Supports(caps, call) &&
         FitsMatrixCores(caps, kLanes, call.inputs[0], call.inputs[WeightOperand(0)]);
}

template <int kLanes>
bool SupportsF8MatrixCores(const device::Capabilities& caps, const ops::OpCall& call) {
  bool fit = Supports(caps, call);
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    fit = fit && FitsF8MatrixCores(caps, kLanes, call.inputs[0], call.inputs[WeightOperand(i)]);
  }
  return fit;
}

template <int kLanes>
void RunF8OrBf16(const ops::OpCall& call, ops::KernelContext& context) {
  bool are_read = HasAlignedRows(call.inputs[0]);
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    are_read = are_read && AreF8StagesRead(call.inputs[WeightOperand(i)]);
  }
  if (are_read) return MultiplyF8GroupsOnMatrixCores<kLanes>(call, context);
  RunAligned<MultiplyGroupsOnMatrixCores<kLanes>>(call, context);
}

int64_t RoundedWorkspaceBytes(const ops::OpCall& call, int32_t num_threads) {
  return WorkspaceBytes(call, num_threads) + RoundedGroups::Of(call.inputs[0]).bytes();
}
#endif

#if !defined(__HIP__)
bool SupportsWgmma(const device::Capabilities& caps, const ops::OpCall& call) {
  return SupportsTensorCores(caps, call) && FitsWgmmaGroups(caps, call);
}

bool SupportsF8Wgmma(const device::Capabilities& caps, const ops::OpCall& call) {
  return SupportsTensorCores(caps, call) && FitsWgmmaF8Groups(caps, call);
}

template <bool (*kTake)(const ops::OpCall&),
          void (*kMultiply)(const ops::OpCall&, ops::KernelContext&)>
void RunWgmmaOrTensorCores(const ops::OpCall& call, ops::KernelContext& context) {
  if (kTake(call)) return kMultiply(call, context);
  RunAligned<MultiplyGroupsOnTensorCores>(call, context);
}

int64_t F8WorkspaceBytes(const ops::OpCall& call, int32_t num_threads) {
  return WorkspaceBytes(call, num_threads) + WgmmaF8GroupsBytes(call);
}
#endif

// Inputs WeightOperand(i).
constexpr ops::WeightPacking kConverted = ConvertedWeights(ops::kWeightInputs << 1);

constexpr ops::Kernel kTensorCore = {.op = "grouped_linear",
                                     .name = "tensor_core",
                                     .priority = 20,
                                     .supports = SupportsTensorCores,
                                     .run = RunAligned<MultiplyGroupsOnTensorCores>,
                                     .workspace_bytes = WorkspaceBytes,
                                     .activations = ops::Precision::kBf16};

#if !defined(__CUDACC__)
template <int kLanes>
constexpr ops::Kernel kMatrixCore = {.op = "grouped_linear",
                                     .name = "matrix_core",
                                     .priority = 20,
                                     .supports = SupportsMatrixCores<kLanes>,
                                     .run = RunAligned<MultiplyGroupsOnMatrixCores<kLanes>>,
                                     .workspace_bytes = WorkspaceBytes,
                                     .activations = ops::Precision::kBf16};
#endif

constexpr ops::Kernel kGpu = {.op = "grouped_linear",
                              .name = "gpu",
                              .priority = 10,
                              .supports = Supports,
                              .run = Run,
                              .workspace_bytes = WorkspaceBytes};

constexpr ops::Kernel kKernels[] = {
#if !defined(__HIP__)
    {.op = "grouped_linear",
     .name = "wgmma",
     .priority = 30,
     .supports = SupportsWgmma,
     .run = RunWgmmaOrTensorCores<WgmmaGroupsTake, MultiplyWgmmaGroups>,
     .workspace_bytes = WorkspaceBytes,
     .activations = ops::Precision::kBf16},
    {.op = "grouped_linear",
     .name = "wgmma",
     .priority = 35,
     .supports = SupportsF8Wgmma,
     .run = RunWgmmaOrTensorCores<WgmmaF8GroupsTake, MultiplyWgmmaF8Groups>,
     .workspace_bytes = F8WorkspaceBytes,
     .activations = ops::Precision::kF8,
     .varies_with_batch = true},  // no test compares its rows
#endif
    kTensorCore,
    OfConverted<SupportsTensorCores, kConverted>(kTensorCore),
#if !defined(__CUDACC__)
    kMatrixCore<32>,
    OfConverted<SupportsMatrixCores<32>, kConverted>(kMatrixCore<32>),
    kMatrixCore<64>,
    OfConverted<SupportsMatrixCores<64>, kConverted>(kMatrixCore<64>),
    {.op = "grouped_linear",
     .name = "matrix_core_f8",
     .priority = 30,
     .supports = SupportsF8MatrixCores<32>,
     .run = RunF8OrBf16<32>,
     .workspace_bytes = RoundedWorkspaceBytes,
     .activations = ops::Precision::kF8},
    {.op = "grouped_linear",
     .name = "matrix_core_f8",
     .priority = 30,
     .supports = SupportsF8MatrixCores<64>,
     .run = RunF8OrBf16<64>,
     .workspace_bytes = RoundedWorkspaceBytes,
     .activations = ops::Precision::kF8},
#endif
    kGpu,
    OfConverted<Supports, kConverted>(kGpu),
};

}  // namespace

std::span<const ops::Kernel> GroupedLinearKernels() { return kKernels; }

}  // namespace pagemill::gpu
