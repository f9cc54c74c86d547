#include "cc/capi/host.h"

#include <cinttypes>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

#include "cc/device/capabilities.h"
#include "cc/kv_cache/kv_cache_options.h"
#include "cc/ops/op.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/native_executor.h"
#include "cc/program/program.h"
#include "cc/program/weights/program_file.h"
#include "cc/runner/control/program_control.h"
#include "cc/runner/model_runner.h"
#include "cc/sampling/ngram_proposer.h"

namespace pagemill::capi {
namespace {

// The input of programs whose prompts may have media.
constexpr std::string_view kEmbeddings = "embeddings";

// Token ids that the program's embedding has; 0 if it has none.
int32_t EmbeddedTokens(const program::Program& program) {
  for (const program::Op& op : program.ops()) {
    if (op.name != "embedding" || op.inputs.size() < 2) continue;
    return static_cast<int32_t>(program.value(op.inputs[1]).shape.dims.front());
  }
  return 0;
}

// A model runner that also owns its executor.
class OwningRunner final : public engine::Runner {
 public:
  OwningRunner(std::unique_ptr<program::NativeExecutor> executor,
               std::unique_ptr<runner::ProgramControl> control,
               std::unique_ptr<runner::ModelRunner> runner)
      : Runner(runner->limits(), executor->pages(), control.get()),
        executor_(std::move(executor)),
        control_(std::move(control)),
        runner_(std::move(runner)) {}
  Status Execute(const step::StepPlan& plan) override { return runner_->Execute(plan); }
  Status Sample() override { return runner_->Sample(); }
  StatusOr<step::StepResult> Collect() override { return runner_->Collect(); }

 private:
  std::unique_ptr<program::NativeExecutor> executor_;
  std::unique_ptr<runner::ProgramControl> control_;
  std::unique_ptr<runner::ModelRunner> runner_;
};

StatusOr<engine::RunnerLimits> LimitsOf(const program::Program& program, const HostOptions& options,
                                        const program::ExecutorOptions& o) {
  PAGEMILL_ASSIGN_OR_RETURN(const program::KvLayout layout,
                            program::PlanKvLayout(program, program::GeometryOf(o)));
  const std::optional<program::ValueId> logits = program.FindOutput(program::kLogits);
  const bool generates = logits.has_value();
  engine::RunnerLimits limits = {
      .max_num_tokens = o.max_num_tokens,
      .max_num_seqs = o.max_num_seqs,
      .max_num_logits_rows = o.max_num_logits_rows,
      .max_model_len = options.max_model_len,
      .vocab_size = generates ? static_cast<int32_t>(program.value(*logits).shape.RowElements())
                              : EmbeddedTokens(program),
      .num_blocks = o.num_blocks,
      .block_size = o.block_size,
      .kv_groups = program::KvGroupsOf(program, layout)};
  // There are no media (MakeRunner), so what sees each other is the tokens of a prompt.
  const bool causal = !program.Find("item_ends").has_value();
  limits.chunked_prefill = generates && causal;
  limits.prefix_caching = generates && causal;
  limits.pooling = !generates;
  limits.max_draft_tokens = options.num_ngram_drafts;
  if (limits.kv_groups.empty()) limits.num_blocks = 0;
  if (limits.num_blocks == 0 && !limits.kv_groups.empty()) {
    PAGEMILL_ASSIGN_OR_RETURN(limits.num_blocks, PagesForOneRequest(limits));
  }
  return limits;
}

std::string FingerprintOf(const program::NativeExecutor& executor) {
  const Digest128 digest = executor.kv_fingerprint();
  char text[33];
  std::snprintf(text, sizeof(text), "%016" PRIx64 "%016" PRIx64, digest.high, digest.low);
  return text;
}

StatusOr<std::unique_ptr<engine::Runner>> MakeRunner(HostOptions* options) {
  program::ExecutorOptions& o = options->executor;
  if (options->max_model_len < 1) return InvalidArgument("max_model_len must be at least 1");
  if (o.block_size < 1) return InvalidArgument("block_size must be at least 1");
  if (options->num_ngram_drafts < 0 || options->num_ngram_drafts > options->max_model_len) {
    return InvalidArgument("num_ngram_drafts is " + std::to_string(options->num_ngram_drafts) +
                           "; it must be from 0 to max_model_len");
  }
  PAGEMILL_ASSIGN_OR_RETURN(const std::string text,
                            program::ReadProgramFile(options->program_path));
  PAGEMILL_ASSIGN_OR_RETURN(program::Program program, program::Program::Parse(text));
  if (program.Find(kEmbeddings).has_value()) {
    return InvalidArgument(
        "the program takes embeddings in place of tokens, which an encoder computes, and a program "
        "file has none: export it with --language-model-only, without --enable-prompt-embeds");
  }
  o.max_draft_tokens = options->num_ngram_drafts;
  o.state_checkpoints = options->engine.enable_prefix_caching;
  PAGEMILL_ASSIGN_OR_RETURN(const engine::RunnerLimits limits, LimitsOf(program, *options, o));
  o.num_blocks = limits.num_blocks;
  const program::Target target = {.ops = ops::CpuOps(),
                                  .capabilities = device::DetectCapabilities()};
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<program::NativeExecutor> executor,
                            program::NativeExecutor::Create(std::move(program), target, o));
  auto control = std::make_unique<runner::ProgramControl>(
      std::vector<runner::ProgramControl::Named>{{"model", executor.get()}});
  runner::ModelRunnerParts parts = {.pages = executor->pages(), .control = control.get()};
  if (options->num_ngram_drafts > 0) {
    parts.proposer = std::make_unique<sampling::NgramProposer>(
        sampling::NgramProposerOptions{.max_num_seqs = limits.max_num_seqs});
  }
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<runner::ModelRunner> runner,
                            runner::ModelRunner::Create(executor.get(), executor->thread_pool(),
                                                        limits, std::move(parts)));
  engine::KvTierOptions& tiers = options->engine.kv_tiers;
  const program::NativeExecutor* fingerprinted = executor.get();  // outlives the engine
  if (!tiers.fingerprint)
    tiers.fingerprint = [fingerprinted] { return FingerprintOf(*fingerprinted); };
  return std::unique_ptr<engine::Runner>(
      std::make_unique<OwningRunner>(std::move(executor), std::move(control), std::move(runner)));
}

}  // namespace

StatusOr<int32_t> PagesForOneRequest(const engine::RunnerLimits& limits) {
  const kv_cache::KvCacheOptions cache = {.num_blocks = 2,
                                          .block_size = limits.block_size,
                                          .groups = limits.kv_groups,
                                          .max_step_tokens = limits.max_num_tokens,
                                          .max_steps_in_flight = 1};
  PAGEMILL_RETURN_IF_ERROR(cache.Validate());
  return 1 + cache.MaxPagesOfRequest(limits.max_model_len);
}

Host::~Host() = default;

StatusOr<std::unique_ptr<Host>> Host::Create(HostOptions options) {
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<engine::Runner> runner, MakeRunner(&options));
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<Host> host,
                            Create(std::move(options), std::move(runner)));
  host->has_program_ = true;
  return host;
}

StatusOr<std::unique_ptr<Host>> Host::Create(HostOptions options,
                                             std::unique_ptr<engine::Runner> runner) {
  std::unique_ptr<Host> host(new Host());
  host->vocab_size_ = runner->limits().vocab_size;
  host->max_model_len_ = runner->limits().max_model_len;
  PAGEMILL_ASSIGN_OR_RETURN(host->engine_,
                            engine::Engine::Create(options.engine, std::move(runner), &host->clock_,
                                                   std::move(options.log)));
  return host;
}

Status Host::UpdateWeights(const std::string& program_path, double timeout_s) {
  if (!has_program_) {
    return Unimplemented("this engine has a runner of the host's own, not a program's weights");
  }
  PAGEMILL_ASSIGN_OR_RETURN(std::string text, program::ReadProgramFile(program_path));
  return engine_->UpdateWeights({{"model", std::move(text)}}, timeout_s);
}

}  // namespace pagemill::capi
