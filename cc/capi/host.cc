#include "cc/capi/host.h"

#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "cc/device/capabilities.h"
#include "cc/engine/runner.h"
#include "cc/kv_cache/kv_cache_options.h"
#include "cc/ops/op.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/native_executor.h"
#include "cc/program/program.h"
#include "cc/runner/model_runner.h"

namespace pagemill::capi {
namespace {

StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return NotFound("cannot read the program '" + path + "'; `pagemill export` makes one");
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

// The pages for one request of `max_model_len` tokens, plus the null page.
StatusOr<int32_t> PagesForOneRequest(const program::Program& program,
                                     const program::ExecutorOptions& options,
                                     int32_t max_model_len) {
  PAGEMILL_ASSIGN_OR_RETURN(const program::KvLayout layout,
                            program::PlanKvLayout(program, program::GeometryOf(options)));
  const kv_cache::KvCacheOptions cache = {.num_blocks = 2,
                                          .block_size = options.block_size,
                                          .groups = program::KvGroupsOf(program, layout),
                                          .max_step_tokens = options.max_num_tokens,
                                          .max_steps_in_flight = 1};
  PAGEMILL_RETURN_IF_ERROR(cache.Validate());
  return 1 + cache.MaxPagesOfRequest(max_model_len);
}

// A model runner that also owns its executor.
class OwningRunner final : public engine::Runner {
 public:
  OwningRunner(std::unique_ptr<program::NativeExecutor> executor,
               std::unique_ptr<runner::ModelRunner> runner)
      : Runner(runner->limits(), executor->pages()),
        executor_(std::move(executor)),
        runner_(std::move(runner)) {}
  Status Execute(const step::StepPlan& plan) override { return runner_->Execute(plan); }
  Status Sample() override { return runner_->Sample(); }
  StatusOr<step::StepResult> Collect() override { return runner_->Collect(); }

 private:
  std::unique_ptr<program::NativeExecutor> executor_;
  std::unique_ptr<runner::ModelRunner> runner_;
};

}  // namespace

Host::~Host() = default;

StatusOr<std::unique_ptr<Host>> Host::Create(HostOptions options) {
  if (options.max_model_len < 1) return InvalidArgument("max_model_len must be at least 1");
  program::ExecutorOptions& o = options.executor;
  if (o.block_size < 1) return InvalidArgument("block_size must be at least 1");
  PAGEMILL_ASSIGN_OR_RETURN(const std::string text, ReadFile(options.program_path));
  PAGEMILL_ASSIGN_OR_RETURN(program::Program program, program::Program::Parse(text));
  const std::optional<program::ValueId> logits = program.FindOutput(program::kLogits);
  if (!logits) {
    return Unimplemented("'" + options.program_path + "' pools; this host generates tokens");
  }
  const auto vocab_size = static_cast<int32_t>(program.value(*logits).shape.RowElements());
  if (o.num_blocks == 0) {
    PAGEMILL_ASSIGN_OR_RETURN(o.num_blocks, PagesForOneRequest(program, o, options.max_model_len));
  }
  const program::Target target = {.ops = ops::CpuOps(),
                                  .capabilities = device::DetectCapabilities()};
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<program::NativeExecutor> executor,
                            program::NativeExecutor::Create(std::move(program), target, o));
  const engine::RunnerLimits limits = {
      .max_num_tokens = o.max_num_tokens,
      .max_num_seqs = o.max_num_seqs,
      .max_num_logits_rows = o.max_num_logits_rows,
      .max_model_len = options.max_model_len,
      .vocab_size = vocab_size,
      .num_blocks = o.num_blocks,
      .block_size = o.block_size,
      .kv_groups = program::KvGroupsOf(executor->program(), executor->memory_plan().kv)};
  PAGEMILL_ASSIGN_OR_RETURN(
      std::unique_ptr<runner::ModelRunner> runner,
      runner::ModelRunner::Create(executor.get(), executor->thread_pool(), limits));
  std::unique_ptr<Host> host(new Host());
  host->vocab_size_ = vocab_size;
  host->max_model_len_ = options.max_model_len;
  auto owning = std::make_unique<OwningRunner>(std::move(executor), std::move(runner));
  PAGEMILL_ASSIGN_OR_RETURN(host->engine_,
                            engine::Engine::Create(options.engine, std::move(owning), &host->clock_,
                                                   std::move(options.log)));
  return host;
}

}  // namespace pagemill::capi
