// File: cc/program/kv/key_layout.h
// Chooses how keys lie in the KV cache (cc/ops/kv_write/key_layout.h), which follows from the
// kernels of attention that read them.
//
//   PAGEMILL_RETURN_IF_ERROR(ChooseKeyLayout(target, options, &program));
#ifndef PAGEMILL_CC_PROGRAM_KV_KEY_LAYOUT_H_
#define PAGEMILL_CC_PROGRAM_KV_KEY_LAYOUT_H_

#include "cc/base/status.h"
#include "cc/program/executor_options.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/program.h"

namespace pagemill::program {

// Sets `keys_in_rows` of every op that stores or reads keys if each paged_attention then gets a
// better kernel on `target`: the one that options.kernel_filter names, or one of higher priority.
// `program` has the activation type of `options`. Before kernels are selected.
Status ChooseKeyLayout(const Target& target, const ExecutorOptions& options, Program* program);

// Sets `keys_in_rows` of the same program with other weights as it was chosen for `from`.
void CopyKeyLayout(const Program& from, Program* program);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_KV_KEY_LAYOUT_H_
