// Devices of plugins, and executors on them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/bindings/bindings.h"
#include "cc/bindings/device_executor_holder.h"
#include "cc/bindings/status_error.h"
#include "cc/comm/world.h"
#include "cc/device/capabilities.h"
#include "cc/engine/runner.h"
#include "cc/ops/op.h"
#include "cc/program/device/device_plan.h"
#include "cc/program/device/plugin_loader.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/kv/key_layout.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/memory/memory_plan.h"
#include "cc/program/program.h"
#include "cc/runner/block_tables.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using program::DeviceExecutor;
using program::FoundDevice;
using program::LoadedPlugin;
using program::Program;

namespace {

constexpr int32_t kStepsInFlight = 2;

std::shared_ptr<LoadedPlugin> Load(const std::string& path) {
  nb::gil_scoped_release release;  // reads a large file
  return ValueOrThrow(program::LoadPlugin(path, PAGEMILL_VERSION));
}

std::vector<FoundDevice> Find(const LoadedPlugin& self) {
  nb::gil_scoped_release release;  // the driver may start
  return ValueOrThrow(self.plugin().Find());
}

std::vector<std::string> Advice(const LoadedPlugin& self) {
  nb::gil_scoped_release release;  // opens libraries
  return self.plugin().Advice();
}

std::unique_ptr<DeviceHolder> Open(std::shared_ptr<LoadedPlugin> self, int32_t index) {
  nb::gil_scoped_release release;
  program::OpenedDevice opened = ValueOrThrow(self->plugin().Open(index));
  opened.capabilities.cpu = device::DetectCapabilities().cpu;
  return std::unique_ptr<DeviceHolder>(
      new DeviceHolder{.plugin = std::move(self), .index = index, .opened = std::move(opened)});
}

// The names of each op's kernels, the best first.
std::map<std::string, std::vector<std::string>> KernelNames(const DeviceHolder& self) {
  std::map<std::string, std::vector<std::string>> names;
  for (const ops::OpDefinition& op : self.plugin->ops()) {
    std::vector<ops::Kernel> kernels(op.kernels.begin(), op.kernels.end());
    std::ranges::stable_sort(kernels, std::greater<>(), &ops::Kernel::priority);
    for (const ops::Kernel& kernel : kernels) {
      names[std::string(op.op)].emplace_back(kernel.name);
    }
  }
  return names;
}

// With the options' type of activations, and keys as the device's kernels read them.
Program ParseFor(const std::string& text, const program::ExecutorOptions& options,
                 const program::Target& target) {
  Program program = ValueOrThrow(Program::Parse(text));
  ThrowIfError(program.SetActivationType(options.activation_type));
  ThrowIfError(program::ChooseKeyLayout(target, options, &program));
  return program;
}

// For requests of at most `max_model_len` tokens. Tokens are chosen on the device if the program
// has logits, whose first `vocab_size` columns are tokens.
// A draft model's KV lies in pages of its host's cache.
program::DeviceExecutorOptions DeviceOptions(const Program& program,
                                             const program::ExecutorOptions& options,
                                             int32_t max_model_len, int32_t vocab_size,
                                             int32_t max_adapter_rank, bool drafts) {
  const bool has_logits = program.FindOutput(program::kLogits).has_value();
  program::DeviceExecutorOptions made = {.max_blocks = 1,
                                         .max_steps_in_flight = kStepsInFlight,
                                         .token_columns = has_logits ? vocab_size : 0,
                                         .max_adapter_rank = max_adapter_rank,
                                         .shares_kv = drafts};
  engine::RunnerLimits limits;
  limits.max_model_len = max_model_len;
  limits.block_size = options.block_size;
  const program::KvLayout layout =
      ValueOrThrow(program::PlanKvLayout(program, program::GeometryOf(options)));
  // Steps of an encoder have media rows, and are never replayed (StepGraphs::BucketOf()).
  if (layout.tables.empty() && !program.TensorInputs().empty()) made.max_graph_tokens = 0;
  for (const step::KvGroupOptions& group : program::KvGroupsOf(program, layout)) {
    made.max_blocks = std::max(made.max_blocks, runner::BlockTables::MaxEntries(group, limits));
  }
  return made;
}

// What a device needs besides, arrays of steps, chosen tokens, adapters and graphs, counts as
// workspace.
program::MemoryPlan PlanOnDevice(const DeviceHolder& device, const std::string& text,
                                 const program::ExecutorOptions& options, int32_t max_model_len,
                                 int32_t vocab_size, int32_t max_adapter_rank, bool drafts,
                                 int64_t offload_bytes) {
  const Program program = ParseFor(text, options, device.target());
  program::DeviceExecutorOptions device_options =
      DeviceOptions(program, options, max_model_len, vocab_size, max_adapter_rank, drafts);
  device_options.upload.offload_bytes = offload_bytes;
  const program::DevicePlan plan =
      ValueOrThrow(program::PlanDevice(program, device.target(), options, device_options));
  program::MemoryPlan made = {.weights_bytes = plan.weight_bytes,
                              .offloaded_bytes = plan.host_weight_bytes,
                              .activation_bytes = plan.activations.arena_bytes,
                              .output_bytes = plan.output_bytes,
                              .kv = plan.kv()};
  const int64_t kv_bytes = made.kv.arena_bytes();  // which the plan of a draft model has not
  made.workspace_bytes = plan.total_bytes() - plan.kv_bytes - (made.total_bytes() - kv_bytes);
  return made;
}

void InitExecutor(DeviceExecutorHolder* self, const DeviceHolder& device, const std::string& text,
                  const program::ExecutorOptions& options, comm::World* world,
                  int32_t max_model_len, int32_t vocab_size, int32_t max_adapter_rank,
                  const DeviceExecutorHolder* host, int64_t offload_bytes) {
  nb::gil_scoped_release release;  // uploads weights, and waits for other ranks
  program::Target target = device.target();
  if (world != nullptr) target.groups = world->groups();
  Program program = ParseFor(text, options, target);
  program::DeviceExecutorOptions device_options =
      DeviceOptions(program, options, max_model_len, vocab_size, max_adapter_rank, host != nullptr);
  device_options.upload.offload_bytes = offload_bytes;
  const bool samples = world == nullptr || world->rank() == 0;
  const int32_t num_threads = !samples                  ? 1
                              : options.num_threads > 0 ? options.num_threads
                                                        : device.opened.capabilities.cpu.cores;
  std::unique_ptr<DeviceExecutor> executor = ValueOrThrow(DeviceExecutor::Create(
      std::move(program), target, *device.opened.device, options, device_options,
      host == nullptr ? nullptr : host->executor.get()));
  new (self) DeviceExecutorHolder{
      .options = options,
      .pool = host != nullptr ? host->pool
                              : std::make_shared<device::ThreadPool>(
                                    device::ThreadPoolOptions{.num_threads = num_threads}),
      .executor = std::move(executor)};
}

std::string KvFingerprint(const DeviceExecutorHolder& self) {
  nb::gil_scoped_release release;  // reads files
  return ToHex(self.executor->kv_fingerprint());
}

}  // namespace

void BindDevices(nb::module_& m) {
  nb::class_<FoundDevice>(m, "FoundDevice")
      .def_ro("name", &FoundDevice::name)
      .def_ro("architecture", &FoundDevice::architecture)
      .def_ro("memory_bytes", &FoundDevice::memory_bytes);
  nb::class_<LoadedPlugin>(m, "DevicePlugin")
      .def(nb::new_(&Load), nb::arg("path"))
      .def_prop_ro("vendor",
                   [](const LoadedPlugin& self) { return std::string(self.plugin().vendor()); })
      .def("devices", &Find)
      .def("advice", &Advice)
      .def("open", &Open, nb::arg("index"));
  nb::class_<DeviceHolder>(m, "Device")
      .def_prop_ro("vendor",
                   [](const DeviceHolder& self) {
                     return std::string(self.plugin->plugin().vendor());
                   })
      .def_ro("index", &DeviceHolder::index)
      .def_prop_ro("name",
                   [](const DeviceHolder& self) { return self.opened.capabilities.gpu.name; })
      .def_prop_ro("kernels", &KernelNames)
      .def_prop_ro("free_bytes", [](const DeviceHolder& self) {
        return self.opened.device->CountMemory().free;
      });
  nb::class_<DeviceExecutorHolder>(m, "DeviceExecutor")
      .def("__init__", &InitExecutor, nb::arg("device"), nb::arg("text"), nb::arg("options"),
           nb::arg("world").none() = nb::none(), nb::kw_only(), nb::arg("max_model_len"),
           nb::arg("vocab_size"), nb::arg("max_adapter_rank") = 1,
           nb::arg("host").none() = nb::none(), nb::arg("offload_bytes") = 0,
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 9>())
      .def("kv_fingerprint", &KvFingerprint);
  m.def("plan_on_device", &PlanOnDevice, nb::arg("device"), nb::arg("text"), nb::arg("options"),
        nb::kw_only(), nb::arg("max_model_len"), nb::arg("vocab_size"),
        nb::arg("max_adapter_rank") = 1, nb::arg("drafts") = false, nb::arg("offload_bytes") = 0);
}

}  // namespace pagemill::bindings
