#include "cc/ops/rotary/rotary.h"

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/rotary/rotary_token.h"
#include "cc/ops/row_split.h"

namespace pagemill::ops {
namespace {

constexpr int64_t kMaxRotaryOffset = int64_t{1} << 20;

Status CheckRotary(const OpCall& call) {
  OperandCheck check("rotary", call, /*inputs=*/4, /*outputs=*/2);
  check.ActInput(0, "q", "T,Q,D");
  check.ActInput(1, "k", "T,K,D");
  const bool one = call.inputs.size() < 3 || call.inputs[2].rank == 1;
  check.Input(2, "positions", DType::kI32, one ? "T" : "T,N");
  check.Input(3, "inv_freq", DType::kF32, one ? "P" : "N,P");
  check.ActOutput(0, "q", "T,Q,D");
  check.ActOutput(1, "k", "T,K,D");
  check.IntegerAttribute("interleaved", /*fallback=*/0, 0, 1);
  check.Require(2 * check.Dim('P') <= check.Dim('D') && check.Dim('P') <= kMaxRotaryPairs,
                "inv_freq has " + std::to_string(check.Dim('P')) + " pairs, more than " +
                    std::to_string(kMaxRotaryPairs) + " or than half the head dimension " +
                    std::to_string(check.Dim('D')));
  check.IntegerAttribute("offset", /*fallback=*/0, -kMaxRotaryOffset, kMaxRotaryOffset);
  check.IntegerAttribute("begin", /*fallback=*/0, 0, check.Dim('D') - 2 * check.Dim('P'));
  return check.Result();
}

template <const RotaryKernel* kKernel>
void Run(const OpCall& call, KernelContext& context) {
  const RotaryArgs args = ToRotaryArgs(call);
  const RotaryFrequencies frequencies = FrequenciesOf(args);
  const int64_t grain = RowsPerChunk(args.q.RowElements() + args.k.RowElements());
  context.pool->ParallelFor(args.q.shape[0], grain, [&](int64_t begin, int64_t end, int) {
    RotateTokens(*kKernel, args, frequencies, begin, end);
  });
}

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"rotary", "avx512", 30, OnAvx512, Run<&kRotaryAvx512>},
    {"rotary", "avx2", 20, OnAvx2, Run<&kRotaryAvx2>},
#endif
    {"rotary", "portable", 10, OnEveryCpu, Run<&kRotaryPortable>},
    WidenedReference<&kRotaryReference>("rotary"),
};

constexpr AliasRule kAliases[] = {{.input = 0, .output = 0}, {.input = 1, .output = 1}};

constexpr OpDefinition kDefinition{"rotary", CheckRotary, kKernels, kAliases};

}  // namespace

RotaryArgs ToRotaryArgs(const OpCall& call) {
  return {.q = call.inputs[0],
          .k = call.inputs[1],
          .positions = call.inputs[2],
          .inv_freq = call.inputs[3],
          .q_out = call.outputs[0],
          .k_out = call.outputs[1],
          .interleaved = call.attributes->GetInt("interleaved", 0) != 0,
          .mscale = static_cast<float>(call.attributes->Get("mscale", 1)),
          .begin = static_cast<int32_t>(call.attributes->GetInt("begin", 0)),
          .offset = static_cast<int32_t>(call.attributes->GetInt("offset", 0))};
}

RotaryFrequencies FrequenciesOf(const RotaryArgs& args) {
  const bool one = args.inv_freq.rank == 1;
  return {.inv_freq = args.inv_freq.Data<float>(),
          .pairs = static_cast<int32_t>(args.inv_freq.shape[one ? 0 : 1]),
          .dims = one ? 1 : static_cast<int32_t>(args.inv_freq.shape[0]),
          .dim_stride = args.inv_freq.row_stride_bytes / int64_t{sizeof(float)},
          .interleaved = args.interleaved,
          .mscale = args.mscale,
          .begin = args.begin,
          .offset = args.offset};
}

void RotateTokens(const RotaryKernel& kernel, const RotaryArgs& args,
                  const RotaryFrequencies& frequencies, int64_t begin, int64_t end) {
  const int64_t head_dim = args.q.shape[2];
  const int64_t q_heads = args.q.shape[1];
  const int64_t k_heads = args.k.shape[1];
  RotaryAngles angles;
  for (int64_t t = begin; t < end; ++t) {
    kernel.angles(frequencies, args.positions.Row<int32_t>(t), &angles);
    kernel.rotate(frequencies, angles,
                  {args.q.Row<float>(t), args.q_out.Row<float>(t), q_heads, head_dim});
    kernel.rotate(frequencies, angles,
                  {args.k.Row<float>(t), args.k_out.Row<float>(t), k_heads, head_dim});
  }
}

const OpDefinition& RotaryOp() { return kDefinition; }

}  // namespace pagemill::ops
