#include "cc/program/native_executor.h"

#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "cc/device/core_count.h"
#include "cc/program/memory/activation_plan.h"
#include "cc/program/native_bound.h"
#include "cc/program/operand_views.h"

namespace pagemill::program {
namespace {

// All bits set is a NaN in every floating-point type, and -1 in integers.
void Poison(std::byte* data, int64_t bytes) { std::memset(data, 0xFF, static_cast<size_t>(bytes)); }

}  // namespace

// Checks that this program can share its host's threads and arena of KV pages.
Status NativeExecutor::Bound::ShareWith(const Bound& host) {
  const auto same = [](const char* what, int64_t own, int64_t hosts) {
    if (own == hosts) return OkStatus();
    return InvalidArgument("a program that shares another's KV cache and threads has " +
                           std::to_string(own) + " " + what + ", the other " +
                           std::to_string(hosts));
  };
  if (plan.kv.page_bytes > 0) {
    PAGEMILL_RETURN_IF_ERROR(same("bytes a page", plan.kv.page_bytes, host.plan.kv.page_bytes));
    PAGEMILL_RETURN_IF_ERROR(same("pages", options.num_blocks, host.options.num_blocks));
  }
  PAGEMILL_RETURN_IF_ERROR(same("threads", kernels.num_threads, host.kernels.num_threads));
  pool = host.pool;
  activity = host.activity;
  kv_arena = host.kv_arena;
  return OkStatus();
}

Status NativeExecutor::Bound::AllocateOwn() {
  if (options.place_memory) {
    placement = device::PlacementFor(device::AllowedCpus(), device::NumaNodes());
  }
  PAGEMILL_ASSIGN_OR_RETURN(kv, LazyMemory::Allocate(plan.kv.arena_bytes(), "the KV cache"));
  kv_arena = kv.data();
  const Status placed = device::PlaceMemory(kv.bytes(), placement);
  memory_placement = placed.ok() ? placement.Description() : placed.message();
  if (!placed.ok()) placement = {};
  own_pool = std::make_unique<device::ThreadPool>(
      device::ThreadPoolOptions{.num_threads = kernels.num_threads});
  pool = own_pool.get();
  return OkStatus();
}

Status NativeExecutor::Bound::AllocateMemory(const Bound* host) {
  PAGEMILL_ASSIGN_OR_RETURN(arena, LazyMemory::Allocate(plan.activation_bytes, "activations"));
  PAGEMILL_ASSIGN_OR_RETURN(workspace, LazyMemory::Allocate(plan.workspace_bytes, "workspace"));
  PAGEMILL_ASSIGN_OR_RETURN(outputs, LazyMemory::Allocate(plan.output_bytes, "outputs"));
  PAGEMILL_RETURN_IF_ERROR(host == nullptr ? AllocateOwn() : ShareWith(*host));
  groups = target.groups;
  if (!options.pack_cache_folder.empty()) pack_cache.emplace(options.pack_cache_folder);
  PAGEMILL_RETURN_IF_ERROR(
      weights->Load(Packing(), host == nullptr ? nullptr : &host->weights->packed()));
  if (host == nullptr && plan.kv.page_bytes > 0) {
    PopulateKv();
    pages = std::make_unique<CachePages>(kv.bytes(), static_cast<size_t>(plan.kv.page_bytes));
  }
  return OkStatus();
}

void NativeExecutor::Bound::PopulateKv() {
  kv_populated.emplace(kv.bytes(), activity);
}

void NativeExecutor::Bound::BindProgram() {
  const ActivationPlan activations = PlanActivations(program(), target.ops, options.max_sizes());
  adapters = AdapterTables(program(), options.max_adapters);
  bound = Bind(program(), kernels, activations, options,
               {.activations = arena.data(),
                .outputs = outputs.data(),
                .kv = kv_arena,
                .plans = workspace.data(),
                .workspace = workspace.data() + kernels.plan_bytes,
                .weight = [this](size_t op, size_t input) { return WeightOf(op, input); },
                .part = [this](ValueId id) { return PartOf(id); },
                .adapter = [this](ValueId id) { return adapters.TableOf(id); }});
  calls.emplace(bound);
  context = {.pool = pool, .workspace = bound.workspace, .groups = &groups};
  LinkWeights();
  greedy_tail = GreedyTail::Find(program(), target.ops, options.max_num_logits_rows);
  output_views.clear();
  for (const Output& output : program().outputs()) output_views.push_back({output.name, {}});
  if (options.poison_dead_memory) FindDeadValues();
}

void NativeExecutor::Bound::FindDeadValues() {
  dead.assign(program().ops().size(), {});
  const std::vector<Lifetime> lifetimes = Lifetimes(program());
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const ValueId id(static_cast<int32_t>(i));
    if (program().value(id).kind != ValueKind::kActivation || program().IsOutput(id)) continue;
    dead[static_cast<size_t>(lifetimes[i].last)].push_back(id);
  }
}

void NativeExecutor::Bound::SetOutputs(const StepSizes& sizes, ExecutorOutput* output) {
  for (size_t i = 0; i < output_views.size(); ++i) {
    const ValueId id = program().outputs()[i].value;
    const bool computed = !greedy || output_views[i].name != kLogits;
    output_views[i].view =
        computed ? MakeView(program().value(id), sizes, ValueData(id)) : TensorView{};
  }
  output->outputs = output_views;
  output->maxima = {};
  if (greedy) output->maxima = greedy_tail->maxima(static_cast<int32_t>(sizes.logits_rows));
}

void NativeExecutor::Bound::RunOp(size_t index) {
  const ops::Kernel& kernel = *bound.ops[index].kernel;
  const ops::OpCall& call = (*calls)[index];
  pool->ReadAhead(next[index]);
  context.plan = bound.ops[index].plan;
  if (greedy && greedy_tail->Replaces(index)) {
    greedy_tail->Run(index, kernel, call, context);
  } else {
    kernel.run(call, context);
  }
}

void NativeExecutor::Bound::Walk() {
  for (size_t i = 0; i < bound.ops.size(); ++i) RunOp(i);
}

void NativeExecutor::Bound::PoisonOutputs(size_t index) {
  for (ValueId id : program().ops()[index].outputs) {
    std::byte* target = ValueData(id);
    bool takes_over_input = false;
    for (ValueId input : program().ops()[index].inputs) {
      takes_over_input |= input != kNoValue && ValueData(input) == target;
    }
    if (!takes_over_input) Poison(target, program().value(id).Bytes(options.max_sizes()));
  }
}

void NativeExecutor::Bound::RunRecorded(size_t index) {
  if (!IsRecorded()) return RunOp(index);
  const int64_t begin_ns = timeline->Now();
  RunOp(index);
  timeline->Add(op_labels[index], begin_ns);
}

void NativeExecutor::Bound::WalkInstrumented() {
  using Clock = std::chrono::steady_clock;
  for (size_t i = 0; i < bound.ops.size(); ++i) {
    if (options.poison_dead_memory) PoisonOutputs(i);
    const device::ThreadPoolTimes before = pool->times();
    const Clock::time_point start = Clock::now();
    RunRecorded(i);
    if (profiling) {
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      const device::ThreadPoolTimes after = pool->times();
      // The caller works unless it waits; workers work for the time that the pool reports.
      const double waited_s = (pool->num_threads() - 1) * seconds -
                              (after.workers_busy_s - before.workers_busy_s) +
                              (after.caller_waited_s - before.caller_waited_s);
      profile.Add(KindOf(calls->step()), i, (*calls)[i],
                  {.seconds = seconds, .waited_s = waited_s});
    }
    if (!options.poison_dead_memory) continue;
    for (ValueId id : dead[i]) {
      std::byte* target = ValueData(id);
      bool taken_over = false;
      for (ValueId output : program().ops()[i].outputs) {
        taken_over |= output != id && ValueData(output) == target;
      }
      if (!taken_over) Poison(target, program().value(id).Bytes(options.max_sizes()));
    }
  }
}

StatusOr<std::unique_ptr<NativeExecutor>> NativeExecutor::Create(Program program,
                                                                 const Target& target,
                                                                 const ExecutorOptions& options,
                                                                 NativeExecutor* host) {
  PAGEMILL_RETURN_IF_ERROR(program.SetActivationType(options.activation_type));
  PAGEMILL_RETURN_IF_ERROR(CheckRanks(program, target));
  auto bound = std::make_unique<Bound>();
  PAGEMILL_ASSIGN_OR_RETURN(bound->kernels, SelectKernels(program, target, options));
  PAGEMILL_ASSIGN_OR_RETURN(bound->plan, PlanMemory(program, target, options));
  PAGEMILL_ASSIGN_OR_RETURN(bound->weights, LoadedWeights::Open(std::move(program)));
  bound->target = target;
  bound->options = options;
  PAGEMILL_RETURN_IF_ERROR(bound->AllocateMemory(host == nullptr ? nullptr : host->bound_.get()));
  bound->BindProgram();
  return std::unique_ptr<NativeExecutor>(new NativeExecutor(std::move(bound)));
}

NativeExecutor::NativeExecutor(std::unique_ptr<Bound> bound) : bound_(std::move(bound)) {}
NativeExecutor::~NativeExecutor() = default;

Status NativeExecutor::Enqueue(const ops::StepBatch& batch) {
  Bound& b = *bound_;
  if (b.finished) return FailedPrecondition("the step before is not collected");
  if (!b.weights->loaded()) return FailedPrecondition("the weights are not in memory");
  PAGEMILL_RETURN_IF_ERROR(CheckBatch(batch, b.program(), b.bound, b.options, b.plan.kv));
  const device::Activity::Scope computing(b.activity);
  b.greedy = b.greedy_tail && b.greedy_tail->Serves(batch, b.adapters);
  b.calls->Set(batch);
  MakePlans(b.kernels, *b.calls, b.workspace.bytes());
  if (b.profiling || b.IsRecorded() || b.options.poison_dead_memory) {
    b.WalkInstrumented();
  } else {
    b.Walk();
  }
  PAGEMILL_RETURN_IF_ERROR(b.groups.status());
  b.finished = ops::SizesOf(batch);
  return OkStatus();
}

Status NativeExecutor::Collect(ExecutorOutput* output) {
  Bound& b = *bound_;
  if (!b.finished) return FailedPrecondition("no step was enqueued that is not collected");
  b.SetOutputs(*std::exchange(b.finished, std::nullopt), output);
  return OkStatus();
}

const Program& NativeExecutor::program() const { return bound_->program(); }
const ExecutorOptions& NativeExecutor::options() const { return bound_->options; }
const MemoryPlan& NativeExecutor::memory_plan() const { return bound_->plan; }
const KernelSelection& NativeExecutor::kernels() const { return bound_->kernels; }
const comm::Groups& NativeExecutor::groups() const { return bound_->groups; }
device::ThreadPool* NativeExecutor::thread_pool() { return bound_->pool; }
step::PageStore* NativeExecutor::pages() { return bound_->pages.get(); }
const PackedWeights& NativeExecutor::packed_weights() const { return bound_->weights->packed(); }
const std::string& NativeExecutor::memory_placement() const { return bound_->memory_placement; }
Status NativeExecutor::SetAdapter(int32_t slot, std::shared_ptr<const AdapterWeights> weights) {
  return bound_->adapters.Set(slot, std::move(weights));
}

void NativeExecutor::SetProfiling(bool on) {
  bound_->profiling = on;
  bound_->pool->SetTiming(on);
  if (on) bound_->profile.Start(bound_->program(), bound_->kernels);
}

const OpProfile& NativeExecutor::profile() const { return bound_->profile; }

void NativeExecutor::Record(std::shared_ptr<Timeline> timeline, Timeline::Track track) {
  bound_->timeline = std::move(timeline);
  bound_->op_labels.clear();
  if (bound_->timeline == nullptr) return;
  OpProfile names;
  names.Start(bound_->program(), bound_->kernels);
  for (size_t i = 0; i < bound_->program().ops().size(); ++i) {
    const OpTime& op = names.op(i);
    Timeline::Details details = {{"kernel", op.kernel}, {"layer", names.layer(i)}};
    if (!op.matrix.empty()) details.emplace_back("matrix", op.matrix);
    bound_->op_labels.push_back(bound_->timeline->AddLabel(track, op.op, std::move(details)));
  }
}

}  // namespace pagemill::program
