#include "cc/ops/rotary_kv_write/rotary_kv_write.h"

#include <algorithm>
#include <array>

#include "cc/ops/kernel_support.h"
#include "cc/ops/kv_write/kv_write.h"
#include "cc/ops/kv_write/kv_write_tokens.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/rotary/rotary.h"
#include "cc/ops/rotary/rotary_token.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

constexpr size_t kRotaryInputs = 4;  // then v and the cache

// The `rotary` part of a call.
OpCall RotaryPart(const OpCall& call) {
  return {.inputs = call.inputs.first(kRotaryInputs),
          .outputs = call.outputs,
          .attributes = call.attributes,
          .batch = call.batch};
}

// The inputs of the `kv_write` part of a call.
std::array<TensorView, 3> KvInputs(const OpCall& call) {
  return {call.outputs[1], call.inputs[kRotaryInputs], call.inputs[kRotaryInputs + 1]};
}

OpCall KvPart(const OpCall& call, const std::array<TensorView, 3>& inputs) {
  return {.inputs = inputs, .outputs = {}, .attributes = call.attributes, .batch = call.batch};
}

Status CheckRotaryKvWrite(const OpCall& call) {
  OperandCheck check("rotary_kv_write", call, /*inputs=*/kRotaryInputs + 2, /*outputs=*/2);
  if (!check.ok()) return check.Result();
  PAGEMILL_RETURN_IF_ERROR(RotaryOp().check(RotaryPart(call)));
  const std::array<TensorView, 3> kv = KvInputs(call);
  return KvWriteOp().check(KvPart(call, kv));
}

void Reference(const OpCall& call, KernelContext& context) {
  RunWidened(kRotaryReference, RotaryPart(call), context);
  const std::array<TensorView, 3> kv = KvInputs(call);
  RunWidened(kKvWriteReference, KvPart(call, kv), context);
}

int64_t ReferenceWorkspaceBytes(const OpCall& call, int32_t num_threads) {
  const std::array<TensorView, 3> kv = KvInputs(call);
  return std::max(WidenedWorkspaceBytes(kRotaryReference, RotaryPart(call), num_threads),
                  WidenedWorkspaceBytes(kKvWriteReference, KvPart(call, kv), num_threads));
}

template <const RotaryKernel* kRotary, const KvWriteKernel* kKvWrite>
void Run(const OpCall& call, KernelContext& context) {
  const RotaryArgs rotary = ToRotaryArgs(RotaryPart(call));
  const BatchView& batch = *call.batch;
  const std::array<TensorView, 3> kv_inputs = KvInputs(call);
  const KvWriteArgs kv = ToKvWriteArgs(KvPart(call, kv_inputs));
  const RotaryFrequencies frequencies = FrequenciesOf(rotary);
  const int64_t elements = rotary.q.RowElements() + 3 * rotary.k.RowElements();
  context.pool->ParallelFor(batch.num_tokens, KvTokensPerChunk(batch, elements),
                            [&](int64_t begin, int64_t end, int) {
                              ForEachKvRun(batch, begin, end, [&](int64_t first, int32_t count) {
                                RotateTokens(*kRotary, rotary, frequencies, first, first + count);
                                if (batch.slot_mapping[first] >= 0)
                                  StoreKvTokens(kv, *kKvWrite, first, count);
                              });
                            });
}

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"rotary_kv_write", "avx512", 30, WithKeysInColumns<OnAvx512>,
     Run<&kRotaryAvx512, &kKvWriteAvx512>},
    {"rotary_kv_write", "avx2", 20, WithKeysInColumns<OnAvx2>,
     Run<&kRotaryAvx2, &kKvWriteAvx2>},
#endif
    {"rotary_kv_write", "portable", 10, WithKeysInColumns<OnEveryCpu>,
     Run<&kRotaryPortable, &kKvWritePortable>},
    {"rotary_kv_write", "reference", 0, InEveryType, Reference, ReferenceWorkspaceBytes},
};

constexpr AliasRule kAliases[] = {{.input = 0, .output = 0}, {.input = 1, .output = 1}};

constexpr OpDefinition kDefinition{
    .op = "rotary_kv_write",
    .check = CheckRotaryKvWrite,
    .kernels = kKernels,
    .may_alias = kAliases,
    .traits = {.fuses = {.first = "rotary", .second = "kv_write", .output = 1, .input = 0}}};

}  // namespace

const OpDefinition& RotaryKvWriteOp() { return kDefinition; }

}  // namespace pagemill::ops
