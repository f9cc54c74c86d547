// Programs: rewriting, planning, and which kernels would run them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/bindings/bindings.h"
#include "cc/bindings/device_executor_holder.h"
#include "cc/bindings/status_error.h"
#include "cc/bindings/target.h"
#include "cc/kv_cache/kv_cache_options.h"
#include "cc/program/executor_options.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/kv/key_layout.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/memory/memory_plan.h"
#include "cc/program/program.h"
#include "cc/program/rewrites/rewrites.h"
#include "cc/step/kv_group_options.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using program::ExecutorOptions;
using program::MemoryPlan;
using program::Program;

namespace {

using Choice = std::tuple<std::string, std::string, std::string, int32_t>;

// With the options' type of activations.
Program ParseFor(std::string_view text, const ExecutorOptions& options) {
  Program program = ValueOrThrow(Program::Parse(text));
  ThrowIfError(program.SetActivationType(options.activation_type));
  return program;
}

std::vector<Choice> KernelChoices(std::string_view text, const ExecutorOptions& options,
                                  const DeviceHolder* device) {
  Program program = ParseFor(text, options);
  const program::Target target = device == nullptr ? CpuTarget() : device->target();
  ThrowIfError(ChooseKeyLayout(target, options, &program));
  const program::KernelSelection selection =
      ValueOrThrow(SelectKernels(program, target, options));
  std::vector<Choice> choices;
  for (program::KernelChoice& c : Summarize(program, selection, options)) {
    choices.emplace_back(c.op, c.operands, c.kernel, c.count);
  }
  return choices;
}

std::vector<step::KvGroupOptions> KvGroups(std::string_view text, const ExecutorOptions& options) {
  const Program program = ValueOrThrow(Program::Parse(text));
  return KvGroupsOf(program, ValueOrThrow(PlanKvLayout(program, GeometryOf(options))));
}

int32_t MaxKvPages(std::vector<step::KvGroupOptions> groups, int32_t block_size,
                   int32_t max_step_tokens, int32_t num_tokens, int32_t max_steps_in_flight) {
  const kv_cache::KvCacheOptions options = {.num_blocks = 2,
                                            .block_size = block_size,
                                            .groups = std::move(groups),
                                            .max_step_tokens = max_step_tokens,
                                            .max_steps_in_flight = max_steps_in_flight};
  ThrowIfError(options.Validate());
  return options.MaxPagesOfRequest(num_tokens);
}

constexpr std::pair<std::string_view, ops::Precision> kActivationDTypes[] = {
    {"f32", ops::Precision::kF32},
    {"bf16", ops::Precision::kMixedBlock},
    {"int8", ops::Precision::kInt8Block},
};

ops::Precision ParseActivationDType(const std::string& name) {
  for (const auto& [known, precision] : kActivationDTypes) {
    if (known == name) return precision;
  }
  ThrowIfError(InvalidArgument("activation_dtype is '" + name + "'; it must be f32, bf16 or int8"));
  return {};
}

std::string ActivationDTypeName(ops::Precision precision) {
  for (const auto& [name, known] : kActivationDTypes) {
    if (known == precision) return std::string(name);
  }
  return {};
}

void BindExecutorOptions(nb::module_& m) {
  nb::class_<ExecutorOptions>(m, "ExecutorOptions")
      .def(
          "__init__",
          [](ExecutorOptions* self, int32_t num_threads, int32_t max_num_tokens,
             int32_t max_num_seqs, int32_t max_num_logits_rows, int32_t num_blocks,
             int32_t block_size, const std::string& kv_cache_dtype, std::string kernel_filter,
             const std::string& activation_dtype, std::string pack_cache_folder, bool place_memory,
             const std::string& activation_type, int64_t kv_page_bytes, int32_t max_adapters,
             int32_t max_draft_tokens, bool state_checkpoints, bool deterministic) {
            const ExecutorOptions options = {
                .num_threads = num_threads,
                .max_num_tokens = max_num_tokens,
                .max_num_seqs = max_num_seqs,
                .max_num_logits_rows = max_num_logits_rows,
                .num_blocks = num_blocks,
                .block_size = block_size,
                .kv_page_bytes = kv_page_bytes,
                .max_adapters = max_adapters,
                .max_draft_tokens = max_draft_tokens,
                .state_checkpoints = state_checkpoints,
                .kv_cache_dtype = ValueOrThrow(program::ParseKvCacheDType(kv_cache_dtype)),
                .activation_type = ValueOrThrow(program::ParseActivationType(activation_type)),
                .kernel_filter = std::move(kernel_filter),
                .activations = ParseActivationDType(activation_dtype),
                .deterministic = deterministic,
                .pack_cache_folder = std::move(pack_cache_folder),
                .place_memory = place_memory};
            ThrowIfError(options.Validate());
            new (self) ExecutorOptions(options);
          },
          nb::kw_only(), nb::arg("num_threads") = 0, nb::arg("max_num_tokens") = 2048,
          nb::arg("max_num_seqs") = 128, nb::arg("max_num_logits_rows") = 256,
          nb::arg("num_blocks") = 1, nb::arg("block_size") = 16, nb::arg("kv_cache_dtype") = "bf16",
          nb::arg("kernel_filter") = "", nb::arg("activation_dtype") = "bf16",
          nb::arg("pack_cache_folder") = "", nb::arg("place_memory") = true,
          nb::arg("activation_type") = "f32", nb::arg("kv_page_bytes") = 0,
          nb::arg("max_adapters") = 0, nb::arg("max_draft_tokens") = 0,
          nb::arg("state_checkpoints") = true, nb::arg("deterministic") = false)
      .def_ro("num_threads", &ExecutorOptions::num_threads)
      .def_ro("max_num_tokens", &ExecutorOptions::max_num_tokens)
      .def_ro("max_num_seqs", &ExecutorOptions::max_num_seqs)
      .def_ro("max_num_logits_rows", &ExecutorOptions::max_num_logits_rows)
      .def_ro("num_blocks", &ExecutorOptions::num_blocks)
      .def_ro("block_size", &ExecutorOptions::block_size)
      .def_prop_ro("kv_cache_dtype",
                   [](const ExecutorOptions& o) {
                     return std::string(program::KvCacheDTypeName(o.kv_cache_dtype));
                   })
      .def_prop_ro(
          "activation_type",
          [](const ExecutorOptions& o) { return std::string(Info(o.activation_type).name); })
      .def_ro("kernel_filter", &ExecutorOptions::kernel_filter)
      .def_ro("deterministic", &ExecutorOptions::deterministic)
      .def_prop_ro("activation_dtype",
                   [](const ExecutorOptions& o) { return ActivationDTypeName(o.activations); });
}

void BindMemoryPlan(nb::module_& m) {
  nb::class_<MemoryPlan>(m, "MemoryPlan")
      .def_ro("weights_bytes", &MemoryPlan::weights_bytes)
      .def_ro("packed_bytes", &MemoryPlan::packed_bytes)
      .def_ro("offloaded_bytes", &MemoryPlan::offloaded_bytes)
      .def_ro("activation_bytes", &MemoryPlan::activation_bytes)
      .def_ro("workspace_bytes", &MemoryPlan::workspace_bytes)
      .def_ro("output_bytes", &MemoryPlan::output_bytes)
      .def_prop_ro("kv_page_bytes", [](const MemoryPlan& p) { return p.kv.page_bytes; })
      .def_prop_ro("kv_bytes", [](const MemoryPlan& p) { return p.kv.arena_bytes(); })
      .def_prop_ro("total_bytes", &MemoryPlan::total_bytes)
      .def("__str__", &MemoryPlan::ToString);
}

void BindCapabilities(nb::module_& m) {
  using device::CpuCapabilities;
  nb::class_<CpuCapabilities>(m, "CpuCapabilities")
      .def_ro("avx2", &CpuCapabilities::avx2)
      .def_ro("avx_vnni", &CpuCapabilities::avx_vnni)
      .def_ro("avx512", &CpuCapabilities::avx512)
      .def_ro("avx512_vnni", &CpuCapabilities::avx512_vnni)
      .def_ro("avx512_bf16", &CpuCapabilities::avx512_bf16)
      .def_ro("amx_bf16", &CpuCapabilities::amx_bf16)
      .def_ro("amx_int8", &CpuCapabilities::amx_int8)
      .def_ro("asimd_dotprod", &CpuCapabilities::asimd_dotprod)
      .def_ro("asimd_bf16", &CpuCapabilities::asimd_bf16)
      .def_ro("asimd_i8mm", &CpuCapabilities::asimd_i8mm)
      .def_ro("vxe", &CpuCapabilities::vxe)
      .def_ro("cores", &CpuCapabilities::cores)
      .def("__str__", &CpuCapabilities::ToString);
  m.def("detect_capabilities", [] { return device::DetectCapabilities().cpu; });
}

}  // namespace

void BindProgram(nb::module_& m) {
  BindExecutorOptions(m);
  BindMemoryPlan(m);
  BindCapabilities(m);
  m.def(
      "rewrite_program",
      [](std::string_view text) {
        return ValueOrThrow(RewriteProgram(ValueOrThrow(Program::Parse(text)), ops::CpuOps()))
            .ToText();
      },
      nb::arg("text"));
  m.def(
      "plan_memory",
      [](std::string_view text, const ExecutorOptions& options) {
        return ValueOrThrow(PlanMemory(ParseFor(text, options), CpuTarget(), options));
      },
      nb::arg("text"), nb::arg("options"));
  m.def("kv_groups", &KvGroups, nb::arg("text"), nb::arg("options"));
  m.def("max_kv_pages", &MaxKvPages, nb::kw_only(), nb::arg("groups"), nb::arg("block_size"),
        nb::arg("max_step_tokens"), nb::arg("num_tokens"), nb::arg("max_steps_in_flight") = 1);
  m.def("kernel_choices", &KernelChoices, nb::arg("text"), nb::arg("options"),
        nb::arg("device").none() = nb::none());
}

}  // namespace pagemill::bindings
