// File: cc/bindings/rank_cpus.h
// What a rank of several may use and hold: its share of the CPUs, how large a step may get, and its
// stage of a pipeline.
#ifndef PAGEMILL_CC_BINDINGS_RANK_CPUS_H_
#define PAGEMILL_CC_BINDINGS_RANK_CPUS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cc/comm/world.h"
#include "cc/device/core_count.h"
#include "cc/device/cpu_share.h"
#include "cc/program/executor_options.h"
#include "cc/program/program.h"
#include "cc/runner/ranks/stage_steps.h"
#include "cc/runner/ranks/step_message.h"

namespace pagemill::bindings {

// Empty if there are more ranks than cores: they share all of them.
inline std::vector<int32_t> RankCpus(const comm::LocalRank& local) {
  return device::CpuShare(device::AllowedCpus(), local.rank, local.num_ranks);
}

inline runner::StepBounds BoundsOf(const program::Program& program,
                                   const program::ExecutorOptions& options) {
  int64_t input_bytes = 0;
  for (program::ValueId id : program.TensorInputs()) {
    input_bytes += program.value(id).Bytes(options.max_sizes());
  }
  return {.max_num_tokens = options.max_num_tokens,
          .max_num_seqs = options.max_num_seqs,
          .max_num_logits_rows = options.max_num_logits_rows,
          .num_blocks = options.num_blocks,
          .input_bytes = input_bytes};
}

// What a stage receives follows from its program.
struct StageParts {
  std::vector<int32_t> tables;     // runner::Stage::tables
  std::vector<std::string> sends;  // runner::Stage::sends
};

inline runner::Stage StageOf(const program::Program& program, StageParts parts) {
  std::vector<std::string> receives;
  for (program::ValueId id : program.TensorInputs()) receives.push_back(program.value(id).name);
  return {std::move(parts.tables), std::move(receives), std::move(parts.sends)};
}

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_RANK_CPUS_H_
