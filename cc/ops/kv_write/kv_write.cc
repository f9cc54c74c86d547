#include "cc/ops/kv_write/kv_write.h"

#include "cc/ops/kernel_support.h"
#include "cc/ops/kv_page.h"
#include "cc/ops/kv_write/int4_row.h"
#include "cc/ops/kv_write/kv_write_tokens.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {
namespace {

void CheckInt4Rows(const OpCall& call, OperandCheck& check) {
  check.Require(check.Dim('D') <= kMaxInt4Dim, "heads of a cache with int4 rows have at most " +
                                                   std::to_string(kMaxInt4Dim) + " elements, got " +
                                                   std::to_string(check.Dim('D')));
  check.Require(
      call.batch->block_size % 4 == 0,
      "blocks of a cache with int4 rows have a multiple of 4 tokens (--block-size), got " +
          std::to_string(call.batch->block_size));
  check.Require(!KeysInRows(call), "a cache with int4 rows has no keys in rows");
}

Status CheckKvWrite(const OpCall& call) {
  OperandCheck check("kv_write", call, /*inputs=*/3, /*outputs=*/0);
  check.ActInput(0, "k", "T,K,D");
  check.ActInput(1, "v", "T,K,V");
  if (!check.ok()) return check.Result();
  check.Require(check.Dim('V') >= 1 && check.Dim('V') <= check.Dim('D'),
                "v must have 1 to " + std::to_string(check.Dim('D')) +
                    " elements a head, as k has, got " + std::to_string(check.Dim('V')));
  const TensorView& cache = call.inputs[2];
  check.Require(IsKvDType(cache.dtype), "cache must be " + std::string(kKvDTypeNames) + ", got " +
                                            std::string(Info(cache.dtype).name));
  if (!check.ok()) return check.Result();
  check.Input(2, "cache", cache.dtype, "B,E");
  check.Require(call.batch != nullptr && call.batch->block_size > 0,
                "the check needs the batch's block_size");
  if (HasInt4Rows(cache.dtype)) CheckInt4Rows(call, check);
  if (!check.ok()) return check.Result();
  const int64_t token_elements = KvTokenElements(cache.dtype, check.Dim('D'));
  const int64_t block_elements = check.Dim('K') * token_elements * call.batch->block_size;
  check.Require(check.Dim('E') == block_elements,
                "a block of the cache must hold " + std::to_string(check.Dim('K')) + " heads * " +
                    std::to_string(token_elements) + " elements * " +
                    std::to_string(call.batch->block_size) + " tokens, got " +
                    std::to_string(check.Dim('E')) + " elements");
  CheckKvScales(call, check);
  CheckKeyLayout(check);
  return check.Result();
}

template <const KvWriteKernel* kKernel>
void Run(const OpCall& call, KernelContext& context) {
  const KvWriteArgs args = ToKvWriteArgs(call);
  const BatchView& batch = *args.batch;
  const int64_t grain = KvTokensPerChunk(batch, 2 * args.k.RowElements());
  context.pool->ParallelFor(batch.num_tokens, grain, [&](int64_t begin, int64_t end, int) {
    ForEachKvRun(batch, begin, end, [&](int64_t first, int32_t count) {
      if (batch.slot_mapping[first] >= 0) StoreKvTokens(args, *kKernel, first, count);
    });
  });
}

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"kv_write", "avx512", 30, WithKeysInColumns<OnAvx512>, Run<&kKvWriteAvx512>},
    {"kv_write", "avx2", 20, WithKeysInColumns<OnAvx2>, Run<&kKvWriteAvx2>},
#endif
    {"kv_write", "portable", 10, WithKeysInColumns<OnEveryCpu>, Run<&kKvWritePortable>},
    WidenedReference<&kKvWriteReference>("kv_write"),
};

constexpr OpDefinition kDefinition{"kv_write", CheckKvWrite, kKernels};

}  // namespace

KvWriteArgs ToKvWriteArgs(const OpCall& call) {
  return {.k = call.inputs[0],
          .v = call.inputs[1],
          .cache = call.inputs[2],
          .batch = call.batch,
          .scales = KvScalesOf(*call.attributes, call.inputs[2].dtype),
          .key = KeyStridesOf(KeysInRows(call), call.inputs[0].shape[2], call.batch->block_size)};
}

const OpDefinition& KvWriteOp() { return kDefinition; }

}  // namespace pagemill::ops
