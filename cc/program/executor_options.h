// File: cc/program/executor_options.h
// Options chosen when a program is bound to this machine: the largest step, the size of the KV
// cache, and the number of compute threads.
#ifndef PAGEMILL_CC_PROGRAM_EXECUTOR_OPTIONS_H_
#define PAGEMILL_CC_PROGRAM_EXECUTOR_OPTIONS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "cc/base/status.h"
#include "cc/ops/op.h"  // Precision
#include "cc/program/program.h"
#include "cc/tensor/dtype.h"

namespace pagemill::program {

struct ExecutorOptions {
  int32_t num_threads = 0;              // compute threads, the caller included; 0 = one per core
  int32_t max_num_tokens = 2048;        // tokens of one step (T)
  int32_t max_num_seqs = 128;           // requests of one step (R)
  int32_t max_num_logits_rows = 256;    // rows of logits of one step (L)
  int32_t num_blocks = 1;               // KV blocks, the null block included
  int32_t block_size = 16;              // tokens per KV block
  int64_t kv_page_bytes = 0;            // bytes per page; 0 = chosen for the program
  int32_t max_adapters = 0;             // slots of a program with adapters
  int32_t max_draft_tokens = 0;         // of a request in a step: its states can go back by as many
  bool state_checkpoints = true;        // false: no request continues from states of another one
  DType kv_cache_dtype = DType::kBF16;  // bf16, f32, f8_e4m3, i8, u4 or k8v4 (kv_page.h)
  DType activation_type = DType::kF32;  // what `act` stands for: f32 (fast), bf16 or f16
  // Runs every op with the kernel of this name ("reference", "portable") if it has a suitable one;
  // at least one op must have it. Empty = the best kernel of each op.
  std::string kernel_filter;
  // The lowest precision to which matrix multiplications and attention may round activations on
  // input if that is faster; applies regardless of kernel_filter.
  ops::Precision activations = ops::Precision::kMixedBlock;
  // Runs no kernel that varies with the batch (ops::Kernel); applies regardless of kernel_filter.
  bool deterministic = false;
  // Folder that caches packed weights (weights/pack_cache.h); empty = weights are packed at every
  // start.
  std::string pack_cache_folder;
  // On a machine with several memory nodes, places weights and KV cache near the threads
  // (device/numa.h).
  bool place_memory = true;
  // Fills outputs before their op, and values after their last reader, with NaN. For tests: slow.
  bool poison_dead_memory = false;

  StepSizes max_sizes() const {
    // Each media row is a token of the step.
    return {max_num_tokens, max_num_seqs, max_num_logits_rows, /*media_rows=*/max_num_tokens,
            /*text_rows=*/max_num_tokens};
  }
  // kInvalidArgument names the field, its value and its range.
  Status Validate() const;
};

// "f32", "bf16" or "f16".
StatusOr<DType> ParseActivationType(std::string_view name);

// Accepts the names that users write: "bf16", "f32", "fp8" (f8_e4m3), "int4" (u4), "int8" (i8),
// "k8v4".
StatusOr<DType> ParseKvCacheDType(std::string_view name);
std::string_view KvCacheDTypeName(DType dtype);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_EXECUTOR_OPTIONS_H_
