// File: cc/program/device/tokens/op_choice.h
// Ops that an executor runs beside its program: their kernels, and the alignment of their memory.
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_TOKENS_OP_CHOICE_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_TOKENS_OP_CHOICE_H_

#include <cstdint>
#include <string_view>

#include "cc/base/status.h"
#include "cc/ops/op.h"
#include "cc/program/kernel_selection.h"

namespace pagemill::program {

inline const ops::Attributes kNoAttributes;

inline int64_t AlignedTo64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// The best kernel of the target for `call`. Errors of the op's check and of the op table.
inline StatusOr<const ops::Kernel*> ChooseFor(const Target& target, std::string_view op,
                                              const ops::OpCall& call) {
  PAGEMILL_ASSIGN_OR_RETURN(const ops::OpDefinition* definition, ops::FindOp(target.ops, op));
  PAGEMILL_RETURN_IF_ERROR(definition->check(call));
  return ops::ChooseKernel(*definition, target.capabilities, call);
}

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_TOKENS_OP_CHOICE_H_
