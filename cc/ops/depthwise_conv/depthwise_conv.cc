#include "cc/ops/depthwise_conv/depthwise_conv.h"

#include <algorithm>
#include <string>

#include "cc/ops/causal_conv/conv_block.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

bool IsOddSquare(int64_t taps) {
  int64_t side = 1;
  while (side * side < taps) side += 2;
  return side * side == taps;
}

Status CheckDepthwiseConv(const OpCall& call) {
  const bool is_indexed = call.inputs.size() > kDepthwiseIndex;
  OperandCheck check("depthwise_conv", call, /*inputs=*/is_indexed ? 4 : 3, /*outputs=*/1);
  check.ActInput(0, "x", is_indexed ? "T,X*" : "T,C*");
  check.Input(1, "w", DType::kF32, "C,K*");
  if (check.ok() && call.inputs[2].rank > 0) check.Input(2, "bias", DType::kF32, "C");
  if (is_indexed) check.Input(kDepthwiseIndex, "index", DType::kI32, "J,K");
  check.ActOutput(0, "y", is_indexed ? "T,Y*" : "T,C*");
  if (!check.ok()) return check.Result();
  const int64_t taps = check.Dim('K');
  check.Require(taps >= 1 && taps <= kMaxDepthwiseTaps, "w must have 1 to " +
                                                            std::to_string(kMaxDepthwiseTaps) +
                                                            " taps, got " + std::to_string(taps));
  check.IntegerAttribute("grid", /*fallback=*/0, 0, 1);
  check.IntegerAttribute("before", /*fallback=*/0, 0, taps - 1);
  if (!check.ok()) return check.Result();
  const bool on_grid = call.attributes->GetInt("grid", 0) != 0;
  const bool is_plain = call.attributes->GetInt("before", 0) == 0;
  check.Require(!on_grid || is_plain, "taps on the grid need before=0");
  check.Require(
      !on_grid || IsOddSquare(taps),
      "taps on the grid must be the square of an odd number, got " + std::to_string(taps));
  if (!is_indexed) return check.Result();
  const int64_t channels = check.Dim('C'), results = check.Dim('J');
  check.Require(!on_grid && is_plain, "an index needs before=0 and grid=0");
  check.Require(
      results > 0 && check.Dim('X') % channels == 0 && check.Dim('Y') == results * channels,
      "rows of " + std::to_string(check.Dim('X')) + " and " + std::to_string(check.Dim('Y')) +
          " elements are not positions and " + std::to_string(results) + " results of " +
          std::to_string(channels) + " channels");
  return check.Result();
}

using Block = ConvBlock<kMaxDepthwiseTaps>;

// What tap `k` of result `j` of token `t` multiplies, from channel `first` on.
const float* Source(const DepthwiseConvArgs& args, int64_t t, int64_t j, int64_t k, int64_t first) {
  const int64_t from = args.listed[(args.is_indexed ? j : t) * args.taps + k];
  if (from < 0) return kConvZeros;
  if (!args.is_indexed) return args.x.Row<const float>(from) + first;
  if (from >= args.positions) return kConvZeros;
  return args.x.Row<const float>(t) + from * args.channels + first;
}

template <ConvRowFunction kRow>
void Run(const OpCall& call, KernelContext& context) {
  constexpr int64_t kResults = 32;  // of a block, which amortize the copy of its taps
  const DepthwiseConvArgs args = ToDepthwiseConvArgs(call, context.plan);
  const int64_t results = args.tokens * args.results;
  ForEachConvBlock<kMaxDepthwiseTaps>(
      args, (results + kResults - 1) / kResults, kResults, context,
      [&](int64_t span, const Block& block) {
        const int64_t last = std::min((span + 1) * kResults, results);
        for (int64_t i = span * kResults; i < last; ++i) {
          const int64_t t = i / args.results, j = i % args.results;
          block.Convolve<kRow>([&](int64_t k) { return Source(args, t, j, k, block.first); },
                               args.y.Row<float>(t) + j * args.channels + block.first,
                               ActivationKind::kIdentity);
        }
      });
}

template <ConvRowFunction kRow>
constexpr Kernel VectorKernel(std::string_view name, int32_t priority,
                              decltype(Kernel::supports) supports) {
  return {.op = "depthwise_conv",
          .name = name,
          .priority = priority,
          .supports = supports,
          .run = Run<kRow>,
          .plan = &kDepthwiseRowsPlan};
}

constexpr F32Kernel kReference{.act_inputs = 0b1, .run = DepthwiseConvReference};

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    VectorKernel<ConvRowAvx512>("avx512", 30, OnAvx512),
    VectorKernel<ConvRowAvx2>("avx2", 20, OnAvx2),
#endif
    VectorKernel<ConvRowPortable>("portable", 10, OnEveryCpu),
    WidenedReference<&kReference>("depthwise_conv"),
};

constexpr OpDefinition kDefinition{"depthwise_conv", CheckDepthwiseConv, kKernels};

}  // namespace

DepthwiseConvArgs ToDepthwiseConvArgs(const OpCall& call, const std::byte* plan) {
  DepthwiseConvArgs args = {.x = call.inputs[0],
                            .w = call.inputs[1],
                            .bias = call.inputs[2],
                            .y = call.outputs[0],
                            .tokens = call.inputs[0].shape[0],
                            .channels = call.inputs[1].shape[0],
                            .taps = call.inputs[1].RowElements(),
                            .listed = reinterpret_cast<const int32_t*>(plan)};
  if (call.inputs.size() <= kDepthwiseIndex) return args;
  const TensorView& index = call.inputs[kDepthwiseIndex];
  args.results = index.shape[0];
  args.positions = args.x.RowElements() / args.channels;
  args.is_indexed = true;
  args.listed = index.Data<const int32_t>();
  return args;
}

const OpDefinition& DepthwiseConvOp() { return kDefinition; }

}  // namespace pagemill::ops
