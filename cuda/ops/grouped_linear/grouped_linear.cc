#include "cc/ops/grouped_linear/grouped_linear.h"

#include "cc/ops/block_format/block_layout.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/grouped_linear/expert_groups.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/linear/row_products.h"
#include "cuda/ops/linear/weight_row.h"

namespace pagemill::gpu {
namespace {

using ops::grouped_linear::BiasOperand;
using ops::grouped_linear::WeightOperand;

constexpr int kThreads = 128;
constexpr int kOutputs = kThreads / kProductLanes;
constexpr int64_t kAlone = 64;  // rows, up to which each is a group: few share an expert
constexpr int64_t kMaxExperts = 4096;

// Groups and the order of their rows; null: row r is group r.
struct Routing {
  const ExpertGroup* data;
  const int32_t* order;
  RoutedIds ids;

  PAGEMILL_DEVICE ExpertGroup GroupAt(int64_t group) const {
    if (data != nullptr) return data[group];
    return {ids.ExpertOf(group), static_cast<int32_t>(group), 1};
  }
  PAGEMILL_DEVICE int32_t RowAt(int32_t index) const {
    return data == nullptr ? index : order[index];
  }
};

struct ProductShape {
  int64_t outputs, columns;  // M, K
  int64_t x_step, y_step;    // elements between the choices of a token
};

// Block (group, outputs): kProductLanes threads for an output of the rows of a group. `stacks` are
// matrices of experts, with rows of `w_row_bytes`.
template <typename T, DType kFormat>
PAGEMILL_KERNEL MultiplyGroup(Routing routing, ProductShape shape, Rows<const T> x,
                              Rows<const uint8_t> stacks, int64_t w_row_bytes,
                              Rows<const float> biases, Rows<T> y) {
  const int thread = static_cast<int>(ThreadIndex().x);
  const ExpertGroup group = routing.GroupAt(BlockIndex().x);
  if (group.count == 0) return;
  const int64_t choices = routing.ids.choices;
  const int64_t m = static_cast<int64_t>(BlockIndex().y) * kOutputs + thread / kProductLanes;
  const bool exists = m < shape.outputs;  // if not, it sums with the others of its warp
  const bool is_zero = group.expert == routing.ids.experts;
  const T* of_x[kRowsAtOnce];
  PAGEMILL_UNROLL
  for (int i = 0; i < kRowsAtOnce; ++i) {
    const int32_t row = routing.RowAt(group.begin + (i < group.count ? i : 0));
    of_x[i] = x[row / choices] + row % choices * shape.x_step;
  }
  float sums[kRowsAtOnce] = {};
  if (!is_zero) {
    const uint8_t* const weights = stacks[group.expert] + (exists ? m : 0) * w_row_bytes;
    MultiplyWithRow<kFormat>(of_x, group.count, weights, shape.columns, sums);
  }
  if (thread % kProductLanes != 0 || !exists) return;
  PAGEMILL_UNROLL
  for (int i = 0; i < kRowsAtOnce; ++i) {
    if (i >= group.count) break;
    const int32_t row = routing.RowAt(group.begin + i);
    float sum = sums[i];
    if (!is_zero && biases.data != nullptr) sum += biases[group.expert][m];
    y[row / choices][row % choices * shape.y_step + m] = FromFloat<T>(sum);
  }
}

RoutedIds IdsOf(const ops::OpCall& call) {
  const Rows<const int32_t> ids = RowsOf<const int32_t>(call.inputs[1]);
  return {ids.data, ids.stride, call.inputs[1].shape[1], call.inputs[1].Elements(),
          static_cast<int32_t>(call.inputs[WeightOperand(0)].shape[0])};
}

int64_t NumGroups(const RoutedIds& ids) {
  return ids.rows <= kAlone ? ids.rows : MaxGroups(ids.rows, ids.experts, kRowsAtOnce);
}

// Groups, then the order of rows.
int64_t WorkspaceBytes(const ops::OpCall& call, int32_t) {
  const RoutedIds ids = IdsOf(call);
  // A smaller call may need groups where the largest call does not have more than these.
  return MaxGroups(ids.rows, ids.experts, kRowsAtOnce) * int64_t{sizeof(ExpertGroup)} +
         ids.rows * int64_t{sizeof(int32_t)};
}

Routing Route(const ops::OpCall& call, ops::KernelContext& context) {
  const RoutedIds ids = IdsOf(call);
  if (ids.rows <= kAlone) return {nullptr, nullptr, ids};
  const int64_t max_groups = NumGroups(ids);
  auto* const groups = reinterpret_cast<ExpertGroup*>(context.workspace.data());
  auto* const order = reinterpret_cast<int32_t*>(groups + max_groups);
  Launch(*context.stream,
         {.blocks = {1},
          .threads = {kGroupThreads},
          .shared_bytes = GroupSharedBytes(ids.experts)},
         GroupRows, ids, kRowsAtOnce, max_groups, order, groups);
  return {groups, order, ids};
}

template <typename T>
void Multiply(const ops::OpCall& call, size_t output, const Routing& routing,
              device::Stream& stream) {
  const TensorView& x = call.inputs[0];
  const TensorView& w = call.inputs[WeightOperand(output)];
  const TensorView& bias = call.inputs[BiasOperand(output)];
  const int64_t outputs = w.shape[1], columns = w.shape[2];
  const ProductShape shape = {outputs, columns, x.RowElements() == columns ? 0 : columns, outputs};
  const LaunchShape launch = {.blocks = {static_cast<uint32_t>(NumGroups(routing.ids)),
                                         DivideUp(outputs, kOutputs)},
                              .threads = {kThreads}};
  const Rows<const float> biases = bias.rank == 0 ? Rows<const float>{} : RowsOf<const float>(bias);
  ops::WithWeightFormat(w.dtype, [&]<DType kFormat>() {
    Launch(stream, launch, MultiplyGroup<T, kFormat>, routing, shape, RowsOf<const T>(x),
           RowsOf<const uint8_t>(w), RowBytes(w.dtype, columns), biases,
           RowsOf<T>(call.outputs[output]));
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const Routing routing = Route(call, context);
  WithActType(call.inputs[0].dtype, [&]<typename T>(T) {
    for (size_t i = 0; i < call.outputs.size(); ++i) Multiply<T>(call, i, routing, *context.stream);
  });
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  const TensorView& w = call.inputs[WeightOperand(0)];
  return OnEveryGpu(caps, call) && IsReadableFormat(w) && w.shape[0] <= kMaxExperts;
}

constexpr ops::Kernel kKernels[] = {
    {"grouped_linear", "gpu", 10, Supports, Run, WorkspaceBytes}};

}  // namespace

std::span<const ops::Kernel> GroupedLinearKernels() { return kKernels; }

}  // namespace pagemill::gpu
