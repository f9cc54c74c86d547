// The runner: an executor with batch state and sampling around it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/clock.h"
#include "cc/bindings/bindings.h"
#include "cc/bindings/collectable.h"
#include "cc/bindings/device_executor_holder.h"
#include "cc/bindings/media_bindings.h"
#include "cc/bindings/python_executor.h"
#include "cc/bindings/rank_cpus.h"
#include "cc/bindings/runner_holder.h"
#include "cc/bindings/set_adapter.h"
#include "cc/bindings/status_error.h"
#include "cc/comm/world.h"
#include "cc/engine/runner.h"
#include "cc/program/adapters/adapter_weights.h"
#include "cc/program/device/device_executor.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/native_executor.h"
#include "cc/runner/adapters/adapter_store.h"
#include "cc/runner/adapters/running_adapters.h"
#include "cc/runner/control/device_control.h"
#include "cc/runner/control/program_control.h"
#include "cc/runner/draft_model.h"
#include "cc/runner/media/media_embeddings.h"
#include "cc/runner/ranks/page_segment.h"
#include "cc/runner/ranks/rank_control.h"
#include "cc/runner/ranks/rank_pages.h"
#include "cc/sampling/draft_proposer.h"
#include "cc/sampling/ngram_proposer.h"
#include "cc/sampling/suffix_proposer.h"
#include "cc/sampling/watermark/watermark.h"
#include "cc/step/kv_group_options.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using engine::RunnerLimits;
using program::LayerTime;
using program::NativeExecutor;
using program::OpTime;
using program::StepKind;
using runner::ModelRunner;
using step::KvGroupOptions;

namespace {

// The limits must not exceed the sizes that the executor was bound for.
void RequireFits(const program::ExecutorOptions& options, const RunnerLimits& limits) {
  const auto require = [](const char* field, int32_t wanted, int32_t bound) {
    if (wanted <= bound) return;
    ThrowIfError(InvalidArgument(std::string("RunnerLimits.") + field + " = " +
                                 std::to_string(wanted) + " exceeds the executor's " +
                                 std::to_string(bound)));
  };
  require("max_num_tokens", limits.max_num_tokens, options.max_num_tokens);
  require("max_num_seqs", limits.max_num_seqs, options.max_num_seqs);
  require("max_num_logits_rows", limits.max_num_logits_rows, options.max_num_logits_rows);
  require("max_adapters", limits.max_adapters, options.max_adapters);
  require("num_blocks", limits.num_blocks, options.num_blocks);
  if (limits.block_size != options.block_size) {
    ThrowIfError(InvalidArgument("RunnerLimits.block_size = " + std::to_string(limits.block_size) +
                                 " differs from the executor's " +
                                 std::to_string(options.block_size)));
  }
}

// A plan has the block tables that the layout of the executor has, then those of the draft model if
// there is one; that of a stage those among them that it names. Their kinds may differ: a group
// that keeps more than its layers read is allowed.
void RequireTables(const program::KvLayout& layout, const program::KvLayout* draft,
                   const std::optional<StageParts>& stage, const RunnerLimits& limits) {
  std::vector<int32_t> block_sizes;
  for (const KvGroupOptions& group : limits.kv_groups) {
    block_sizes.push_back(group.block_size > 0 ? group.block_size : limits.block_size);
  }
  if (stage) {
    std::vector<int32_t> of_stage;
    for (const int32_t table : stage->tables) {
      const bool exists = table >= 0 && static_cast<size_t>(table) < block_sizes.size();
      of_stage.push_back(exists ? block_sizes[static_cast<size_t>(table)] : 0);
    }
    block_sizes = std::move(of_stage);
  }
  std::vector<int32_t> wanted = layout.TableBlockSizes();
  if (draft != nullptr) {
    const std::vector<int32_t> behind = draft->TableBlockSizes();
    wanted.insert(wanted.end(), behind.begin(), behind.end());
  }
  if (block_sizes == wanted) return;
  ThrowIfError(InvalidArgument(
      "RunnerLimits.kv_groups are not those of the executor's program; kv_groups() makes them"));
}

// (min_n, max_n); null = no drafts.
using NgramSizes = std::optional<std::pair<int32_t, int32_t>>;

// Null = no drafts of them.
using SuffixOptions = std::optional<sampling::SuffixProposerOptions>;

std::unique_ptr<sampling::DraftProposer> MakeProposer(const NgramSizes& sizes,
                                                      const SuffixOptions& suffix_options,
                                                      const RunnerLimits& limits) {
  if (suffix_options) {
    sampling::SuffixProposerOptions options = *suffix_options;
    options.max_num_seqs = limits.max_num_seqs;
    ThrowIfError(options.Validate());
    return std::make_unique<sampling::SuffixProposer>(options);
  }
  if (!sizes) return nullptr;
  const sampling::NgramProposerOptions options = {
      .max_num_seqs = limits.max_num_seqs, .min_n = sizes->first, .max_n = sizes->second};
  ThrowIfError(options.Validate());
  return std::make_unique<sampling::NgramProposer>(options);
}

// Optional parts of a runner.
struct Others {
  std::unique_ptr<sampling::DraftProposer> proposer;
  nb::object draft_executor;                     // None: no draft model
  runner::DraftModelOptions draft_options = {};  // without the group and the type of inputs
  std::vector<Encoder> encoders = {};            // of media
  runner::MediaEmbeddingsOptions media_options = {};
  nb::object adapters;  // an AdapterStore; None: the model as it is for all
  std::optional<StageParts> stage = std::nullopt;               // the last of a pipeline
  std::shared_ptr<runner::PageSegment> page_segment = nullptr;  // to copy pages of other ranks
  std::shared_ptr<comm::World> world = nullptr;                 // null: there are none
  std::optional<sampling::Watermark> watermark = std::nullopt;

  // Has the executor type of the runner's model.
  template <typename Executor>
  Executor* draft() const {
    return draft_executor.is_none() ? nullptr : &nb::cast<Executor&>(draft_executor);
  }

  // The executors of all encoders.
  std::vector<nb::object> encoder_executors() const {
    std::vector<nb::object> executors;
    for (const Encoder& encoder : encoders) executors.push_back(encoder.first);
    return executors;
  }
};

// Of an encoder; null if adapters do not change it.
SetAdapter SetAdapterOfEncoder(const nb::object& executor) {
  if (nb::isinstance<NativeExecutor>(executor)) {
    NativeExecutor& native = nb::cast<NativeExecutor&>(executor);
    return program::AdapterValues(native.program()).empty() ? nullptr : SetAdapterOf(native);
  }
  program::DeviceExecutor& device = *nb::cast<DeviceExecutorHolder&>(executor).executor;
  return program::AdapterValues(device.program()).empty() ? nullptr : SetAdapterOf(device);
}

// `model` is the executor of this process; `leading` is null unless there are other ranks.
std::unique_ptr<runner::RunningAdapters> MakeRunningAdapters(SetAdapter model, const Others& others,
                                                             runner::LeadingExecutor* leading,
                                                             const RunnerLimits& limits) {
  if (others.adapters.is_none()) return nullptr;
  std::vector<SetAdapter> programs = {std::move(model)};  // as AdapterParts
  for (const Encoder& encoder : others.encoders) {
    programs.push_back(SetAdapterOfEncoder(encoder.first));
  }
  runner::AdapterCalls calls;
  calls.set = [programs = std::move(programs), leading](int32_t slot, step::AdapterId adapter,
                                                        const runner::AdapterParts& parts) {
    if (leading != nullptr) PAGEMILL_RETURN_IF_ERROR(leading->SetAdapter(slot, adapter));
    for (size_t i = 0; i < programs.size(); ++i) {
      if (programs[i] == nullptr) continue;
      PAGEMILL_RETURN_IF_ERROR(programs[i](slot, i < parts.size() ? parts[i] : nullptr));
    }
    return OkStatus();
  };
  if (leading != nullptr) {
    calls.forget = [leading](step::AdapterId adapter) { return leading->ForgetAdapter(adapter); };
  }
  return std::make_unique<runner::RunningAdapters>(
      std::move(calls), &nb::cast<runner::AdapterStore&>(others.adapters), limits);
}

// An executor of a model or of its draft model, and what the runner needs to know of it.
struct DraftParts {
  program::Executor* executor = nullptr;
  const program::ExecutorOptions* options = nullptr;
  device::ThreadPool* pool = nullptr;
};

runner::DraftQueries QueriesOf(bool has_masks, bool block) {
  if (!has_masks) return runner::DraftQueries::kToken;
  return block ? runner::DraftQueries::kBlock : runner::DraftQueries::kMasks;
}

// `pool` and `first_kv_group` are those of the model that is drafted for.
std::unique_ptr<runner::DraftModel> MakeDraftModel(const DraftParts& draft,
                                                   device::ThreadPool* pool, size_t first_kv_group,
                                                   runner::DraftModelOptions options,
                                                   const Clock* clock, const RunnerLimits& limits) {
  if (draft.pool != pool) {
    ThrowIfError(InvalidArgument("the draft model's executor has another host than this runner's"));
  }
  RunnerLimits passes = limits;
  if (options.queries == runner::DraftQueries::kToken) {
    passes.max_num_logits_rows = limits.max_num_seqs;  // one of each request
  }
  passes.max_adapters = 0;
  RequireFits(*draft.options, passes);
  options.first_kv_group = first_kv_group;
  options.num_tokens = std::min(options.num_tokens, limits.vocab_size);
  options.input_type = draft.options->activation_type;
  return ValueOrThrow(runner::DraftModel::Create(draft.executor, pool, clock, limits, options));
}

bool HasOtherRanks(const NativeExecutor& native) {
  return native.groups().at(comm::Axis::kTensor) != nullptr ||
         native.groups().at(comm::Axis::kPipeline) != nullptr;
}

// The control of all ranks of `tensor`, with `own` for this one; `own` itself if it is alone.
std::unique_ptr<engine::RunnerControl> ControlRanks(comm::Group* tensor,
                                                    std::unique_ptr<engine::RunnerControl> own) {
  if (tensor == nullptr) return own;
  return std::make_unique<runner::LeadingControl>(tensor, std::move(own));
}

// Sleep, wake and weight updates; null for a stage of a pipeline, whose weights the other stages
// would have to follow, and if ranks are on several machines, which have files of their own.
std::unique_ptr<engine::RunnerControl> MakeControl(NativeExecutor& native, const Others& others) {
  if (native.groups().at(comm::Axis::kPipeline) != nullptr) return nullptr;
  if (others.world != nullptr && others.world->spans_nodes()) return nullptr;
  std::vector<runner::ProgramControl::Named> programs = {{"model", &native}};
  for (size_t e = 0; e < others.encoders.size(); ++e) {
    const nb::object& encoder = others.encoders[e].first;
    if (!nb::isinstance<NativeExecutor>(encoder)) continue;
    programs.push_back({EncoderName(e), &nb::cast<NativeExecutor&>(encoder)});
  }
  if (NativeExecutor* const draft = others.draft<NativeExecutor>()) {
    programs.push_back({"draft", draft});
  }
  return ControlRanks(native.groups().at(comm::Axis::kTensor),
                      std::make_unique<runner::ProgramControl>(std::move(programs)));
}

// The pages of all ranks; null if they are not copied. `own` are null if the model has none.
std::unique_ptr<runner::LeadingPages> LeadPages(const Others& others, step::PageStore* own) {
  if (others.page_segment == nullptr || own == nullptr) return nullptr;
  return ValueOrThrow(runner::LeadingPages::Create(others.page_segment, own));
}

// What makes the other ranks, if there are any, run the steps of this one.
struct LedRanks {
  std::unique_ptr<runner::StagedExecutor> staged;    // null: one stage
  std::unique_ptr<runner::LeadingExecutor> leading;  // null: one rank a stage
  program::Executor* steps = nullptr;                // the outermost executor
};

LedRanks LeadRanks(NativeExecutor& native, const Others& others, runner::LeadingPages* pages) {
  comm::Group* const pipeline = native.groups().at(comm::Axis::kPipeline);
  comm::Group* const tensor = native.groups().at(comm::Axis::kTensor);
  const runner::StepBounds bounds = BoundsOf(native.program(), native.options());
  if (HasOtherRanks(native) && others.world == nullptr) {
    ThrowIfError(InvalidArgument("a runner of an executor that has other ranks needs their world"));
  }
  std::vector<int32_t> cpus;
  if (others.world != nullptr) cpus = RankCpus(others.world->local());
  LedRanks led = {.staged = nullptr, .leading = nullptr, .steps = &native};
  if (pipeline != nullptr) {
    if (!others.stage) {
      ThrowIfError(InvalidArgument("rank 0 of a pipeline is a stage: it needs one"));
    }
    led.staged = std::make_unique<runner::StagedExecutor>(
        &native, pipeline, bounds, StageOf(native.program(), *others.stage), cpus);
    led.steps = led.staged.get();
  }
  if (tensor != nullptr) {
    led.leading = std::make_unique<runner::LeadingExecutor>(led.steps, tensor, bounds, cpus, pages);
    led.steps = led.leading.get();
  }
  return led;
}

void InitFromNative(RunnerHolder* self, nb::object executor, const RunnerLimits& limits,
                    Others others) {
  NativeExecutor& native = nb::cast<NativeExecutor&>(executor);
  RequireFits(native.options(), limits);
  NativeExecutor* const draft = others.draft<NativeExecutor>();
  RequireTables(native.memory_plan().kv, draft == nullptr ? nullptr : &draft->memory_plan().kv,
                others.stage, limits);
  auto clock = std::make_unique<SteadyClock>();
  auto led_pages = LeadPages(others, native.pages());
  LedRanks ranks = LeadRanks(native, others, led_pages.get());
  std::unique_ptr<runner::LeadingExecutor>& leading = ranks.leading;
  step::PageStore* const pages = HasOtherRanks(native) ? led_pages.get() : native.pages();
  auto control = MakeControl(native, others);
  std::unique_ptr<runner::DraftModel> draft_model;
  if (draft != nullptr) {
    draft_model = MakeDraftModel({draft, &draft->options(), draft->thread_pool()},
                                 native.thread_pool(), native.memory_plan().kv.tables.size(),
                                 others.draft_options, clock.get(), limits);
  }
  runner::ModelRunnerParts parts = {
      .pages = pages,
      .control = control.get(),
      .proposer = std::move(others.proposer),
      .draft_model = std::move(draft_model),
      .media = MakeMedia(others.encoders, others.media_options, native.options().activation_type),
      .adapters = MakeRunningAdapters(SetAdapterOf(native), others, leading.get(), limits),
      .watermark = others.watermark};
  auto runner = ValueOrThrow(
      ModelRunner::Create(ranks.steps, native.thread_pool(), limits, std::move(parts)));
  new (self) RunnerHolder{.executor = std::move(executor),
                          .encoders = others.encoder_executors(),
                          .draft_executor = std::move(others.draft_executor),
                          .adapters = std::move(others.adapters),
                          .native = &native,
                          .staged = std::move(ranks.staged),
                          .pages = std::move(led_pages),
                          .leading = std::move(leading),
                          .control = std::move(control),
                          .clock = std::move(clock),
                          .runner = std::move(runner)};
}

void InitFromDevice(RunnerHolder* self, nb::object executor, const RunnerLimits& limits,
                    Others others) {
  DeviceExecutorHolder& device = nb::cast<DeviceExecutorHolder&>(executor);
  RequireFits(device.options, limits);
  DeviceExecutorHolder* const draft = others.draft<DeviceExecutorHolder>();
  const program::KvLayout& layout = device.executor->kv_layout();
  RequireTables(layout, draft == nullptr ? nullptr : &draft->executor->kv_layout(),
                /*stage=*/std::nullopt, limits);
  auto clock = std::make_unique<SteadyClock>();
  std::vector<runner::DeviceControl::Named> programs = {{"model", device.executor.get()}};
  for (size_t e = 0; e < others.encoders.size(); ++e) {
    const nb::object& encoder = others.encoders[e].first;
    if (!nb::isinstance<DeviceExecutorHolder>(encoder)) continue;
    programs.push_back({EncoderName(e), nb::cast<DeviceExecutorHolder&>(encoder).executor.get()});
  }
  if (draft != nullptr) programs.push_back({"draft", draft->executor.get()});
  program::Executor* steps = device.executor.get();
  step::PageStore* pages = device.executor->pages();
  std::unique_ptr<runner::LeadingPages> led_pages;
  auto control = ControlRanks(device.executor->groups().at(comm::Axis::kTensor),
                              std::make_unique<runner::DeviceControl>(std::move(programs)));
  std::unique_ptr<runner::LeadingExecutor> leading;
  if (comm::Group* group = device.executor->groups().at(comm::Axis::kTensor)) {
    led_pages = LeadPages(others, pages);
    pages = led_pages.get();
    leading = std::make_unique<runner::LeadingExecutor>(
        steps, group, BoundsOf(device.executor->program(), device.options),
        /*cpus=*/std::vector<int32_t>(), led_pages.get());
    steps = leading.get();
  }
  runner::ModelRunnerParts parts = {
      .pages = pages,
      .control = control.get(),
      .proposer = std::move(others.proposer),
      .media = MakeMedia(others.encoders, others.media_options, device.options.activation_type),
      .adapters =
          MakeRunningAdapters(SetAdapterOf(*device.executor), others, leading.get(), limits),
      .watermark = others.watermark};
  if (draft != nullptr) {
    parts.draft_model = MakeDraftModel({draft->executor.get(), &draft->options, draft->pool.get()},
                                       device.pool.get(), layout.tables.size(),
                                       others.draft_options, clock.get(), limits);
  }
  auto runner =
      ValueOrThrow(ModelRunner::Create(steps, device.pool.get(), limits, std::move(parts)));
  new (self) RunnerHolder{.executor = std::move(executor),
                          .encoders = others.encoder_executors(),
                          .draft_executor = std::move(others.draft_executor),
                          .adapters = std::move(others.adapters),
                          .pages = std::move(led_pages),
                          .leading = std::move(leading),
                          .control = std::move(control),
                          .clock = std::move(clock),
                          .runner = std::move(runner)};
}

void InitFromPython(RunnerHolder* self, nb::object executor, const RunnerLimits& limits,
                    Others others) {
  PythonExecutor& python = nb::cast<PythonExecutor&>(executor);
  auto media = MakeMedia(others.encoders, others.media_options, DType::kF32);
  auto runner = ValueOrThrow(ModelRunner::Create(&python, python.thread_pool(), limits,
                                                 {.proposer = std::move(others.proposer),
                                                  .media = std::move(media),
                                                  .watermark = others.watermark}));
  new (self) RunnerHolder{.executor = std::move(executor),
                          .encoders = others.encoder_executors(),
                          .draft_executor = nb::none(),
                          .adapters = nb::none(),
                          .runner = std::move(runner)};
}

// The measured times of a runner's steps.
struct StepProfile {
  int32_t num_threads = 1;
  runner::StepTimes times;
  std::vector<OpTime> ops;
  std::vector<LayerTime> layers;
};

void SetProfiling(RunnerHolder& self, bool on) {
  self.runner->SetProfiling(on);
  if (self.native != nullptr) self.native->SetProfiling(on);
}

StepProfile Profile(const RunnerHolder& self, bool decode) {
  const StepKind kind = decode ? StepKind::kDecode : StepKind::kPrompt;
  StepProfile profile{.times = self.runner->Profile(kind), .ops = {}, .layers = {}};
  if (self.native == nullptr) return profile;
  profile.num_threads = self.native->thread_pool()->num_threads();
  profile.ops = self.native->profile().Times(kind);
  profile.layers = self.native->profile().Layers(kind);
  return profile;
}

void BindSuffixProposerOptions(nb::module_& m) {
  using sampling::SuffixProposerOptions;
  nb::class_<SuffixProposerOptions>(m, "SuffixProposerOptions")
      .def(
          "__init__",
          [](SuffixProposerOptions* self, int32_t max_match, double max_factor,
             double min_probability, int32_t max_cached_texts) {
            new (self) SuffixProposerOptions{.max_match = max_match,
                                             .max_factor = max_factor,
                                             .min_probability = min_probability,
                                             .max_cached_texts = max_cached_texts};
          },
          nb::kw_only(), nb::arg("max_match"), nb::arg("max_factor"), nb::arg("min_probability"),
          nb::arg("max_cached_texts"));
}

void BindStepProfile(nb::module_& m) {
  nb::class_<OpTime>(m, "OpTime")
      .def_ro("op", &OpTime::op)
      .def_ro("matrix", &OpTime::matrix)
      .def_ro("kernel", &OpTime::kernel)
      .def_ro("calls", &OpTime::calls)
      .def_ro("seconds", &OpTime::seconds)
      .def_ro("waited_s", &OpTime::waited_s)
      .def_ro("bytes", &OpTime::bytes)
      .def_ro("operations", &OpTime::operations);
  nb::class_<LayerTime>(m, "LayerTime")
      .def_ro("layer", &LayerTime::layer)
      .def_ro("seconds", &LayerTime::seconds);
  nb::class_<StepProfile>(m, "StepProfile")
      .def_ro("num_threads", &StepProfile::num_threads)
      .def_prop_ro("steps", [](const StepProfile& p) { return p.times.steps; })
      .def_prop_ro("batch_s", [](const StepProfile& p) { return p.times.batch_s; })
      .def_prop_ro("model_s", [](const StepProfile& p) { return p.times.model_s; })
      .def_prop_ro("collect_s", [](const StepProfile& p) { return p.times.collect_s; })
      .def_prop_ro("sampling_s", [](const StepProfile& p) { return p.times.sampling_s; })
      .def_prop_ro("between_s", [](const StepProfile& p) { return p.times.between_s; })
      .def_ro("ops", &StepProfile::ops)
      .def_ro("layers", &StepProfile::layers);
}

}  // namespace

void BindRunner(nb::module_& m) {
  BindMediaEncoderOptions(m);
  BindStepProfile(m);
  BindSuffixProposerOptions(m);
  nb::class_<RunnerHolder>(m, "ModelRunner", nb::type_slots(CollectableSlots<RunnerHolder>::kSlots))
      .def(
          "__init__",
          [](RunnerHolder* self, nb::object executor, const RunnerLimits& limits,
             const NgramSizes& ngram_sizes, const SuffixOptions& suffix_options,
             nb::object draft_executor, int32_t draft_vocab_size, int32_t draft_states_width,
             int32_t draft_heads, std::optional<int32_t> draft_mask_token_id, bool draft_block,
             int32_t draft_media_width, bool draft_grid_positions,
             std::vector<int32_t> draft_token_ids, std::vector<Encoder> encoders, bool text_rows,
             bool item_ends, bool encoder_ends, nb::object adapters,
             const std::optional<StageParts>& stage,
             std::shared_ptr<runner::PageSegment> page_segment, std::shared_ptr<comm::World> world,
             const std::optional<sampling::Watermark>& watermark) {
            Others others = {.proposer = MakeProposer(ngram_sizes, suffix_options, limits),
                             .draft_executor = std::move(draft_executor),
                             .draft_options = {.num_tokens = draft_vocab_size,
                                               .token_ids = std::move(draft_token_ids),
                                               .states_width = draft_states_width,
                                               .num_heads = draft_heads,
                                               .queries = QueriesOf(draft_mask_token_id.has_value(),
                                                                    draft_block),
                                               .mask_token_id = draft_mask_token_id.value_or(0),
                                               .media_width = draft_media_width,
                                               .grid_positions = draft_grid_positions},
                             .encoders = std::move(encoders),
                             .media_options = {.text_rows = text_rows,
                                               .item_ends = item_ends,
                                               .encoder_ends = encoder_ends},
                             .adapters = std::move(adapters),
                             .stage = stage,
                             .page_segment = std::move(page_segment),
                             .world = std::move(world),
                             .watermark = watermark};
            if (nb::isinstance<NativeExecutor>(executor)) {
              InitFromNative(self, std::move(executor), limits, std::move(others));
            } else if (nb::isinstance<DeviceExecutorHolder>(executor)) {
              InitFromDevice(self, std::move(executor), limits, std::move(others));
            } else if (nb::isinstance<PythonExecutor>(executor)) {
              InitFromPython(self, std::move(executor), limits, std::move(others));
            } else {
              throw nb::type_error(
                  "executor must be a NativeExecutor, DeviceExecutor or PythonExecutor");
            }
          },
          nb::arg("executor"), nb::arg("limits"), nb::kw_only(),
          nb::arg("ngram_sizes") = nb::none(), nb::arg("suffix_options") = nb::none(),
          nb::arg("draft_executor") = nb::none(), nb::arg("draft_vocab_size") = 0,
          nb::arg("draft_states_width") = 0, nb::arg("draft_heads") = 0,
          nb::arg("draft_mask_token_id") = nb::none(), nb::arg("draft_block") = false,
          nb::arg("draft_media_width") = 0, nb::arg("draft_grid_positions") = false,
          nb::arg("draft_token_ids") = std::vector<int32_t>{},
          nb::arg("encoders") = std::vector<Encoder>{}, nb::arg("text_rows") = false,
          nb::arg("item_ends") = false, nb::arg("encoder_ends") = false,
          nb::arg("adapters") = nb::none(), nb::arg("stage") = nb::none(),
          nb::arg("page_segment").none() = nb::none(), nb::arg("world").none() = nb::none(),
          nb::arg("watermark") = nb::none())
      .def_prop_ro("limits", [](const RunnerHolder& self) { return self.runner->limits(); })
      .def_prop_ro("num_encoded_media",
                   [](const RunnerHolder& self) { return self.runner->num_encoded_media(); })
      .def("set_profiling", &SetProfiling, nb::arg("on"))
      .def("profile", &Profile, nb::kw_only(), nb::arg("decode"));
}

}  // namespace pagemill::bindings
