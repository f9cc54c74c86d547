#include "cc/ops/latent_write/latent_write.h"

#include "cc/ops/kernel_support.h"
#include "cc/ops/latent_write/latent_cache.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

Status CheckLatentWrite(const OpCall& call) {
  OperandCheck check("latent_write", call, /*inputs=*/3, /*outputs=*/0);
  check.ActInput(0, "latent", "T,R*");
  if (HasInput(call, 1)) check.ActInput(1, "rope", "T,P*");
  if (!check.ok()) return check.Result();
  RequireLatentCache(call, /*input=*/2, check.Dim('R') + check.Dim('P'), &check);
  return check.Result();
}

constexpr F32Kernel kReference{.act_inputs = 0b11, .run = latent_write::RunReference};

constexpr Kernel kKernels[] = {
    {"latent_write", "portable", 10, OnEveryCpu, latent_write::RunPortable},
    WidenedReference<&kReference>("latent_write"),
};

constexpr OpDefinition kDefinition{"latent_write", CheckLatentWrite, kKernels};

}  // namespace

const OpDefinition& LatentWriteOp() { return kDefinition; }

}  // namespace pagemill::ops
