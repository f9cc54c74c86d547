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
#include "cc/device/capabilities.h"
#include "cc/engine/runner.h"
#include "cc/ops/op.h"
#include "cc/program/device/plugin_loader.h"
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

// Tokens are chosen on the device if the program has logits, whose first `vocab_size` columns are
// tokens.
int32_t TokenColumns(const Program& program, const engine::RunnerLimits& limits) {
  return program.FindOutput(program::kLogits) ? limits.vocab_size : 0;
}

void InitExecutor(DeviceExecutorHolder* self, const DeviceHolder& device, const std::string& text,
                  const program::ExecutorOptions& options, const engine::RunnerLimits& limits) {
  nb::gil_scoped_release release;  // uploads weights
  Program program = ValueOrThrow(Program::Parse(text));
  ThrowIfError(program.SetActivationType(options.activation_type));
  program::DeviceExecutorOptions device_options = {
      .max_blocks = 1,
      .max_steps_in_flight = kStepsInFlight,
      .token_columns = TokenColumns(program, limits)};
  for (const step::KvGroupOptions& group : limits.kv_groups) {
    device_options.max_blocks =
        std::max(device_options.max_blocks, runner::BlockTables::MaxEntries(group, limits));
  }
  const int32_t num_threads =
      options.num_threads > 0 ? options.num_threads : device.opened.capabilities.cpu.cores;
  std::unique_ptr<DeviceExecutor> executor = ValueOrThrow(DeviceExecutor::Create(
      std::move(program), device.target(), *device.opened.device, options, device_options));
  new (self) DeviceExecutorHolder{
      .options = options,
      .pool = std::make_unique<device::ThreadPool>(
          device::ThreadPoolOptions{.num_threads = num_threads}),
      .executor = std::move(executor)};
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
      .def_prop_ro("free_bytes", [](const DeviceHolder& self) { return self.opened.free_bytes; });
  nb::class_<DeviceExecutorHolder>(m, "DeviceExecutor")
      .def("__init__", &InitExecutor, nb::arg("device"), nb::arg("text"), nb::arg("options"),
           nb::arg("limits"), nb::keep_alive<1, 2>());
}

}  // namespace pagemill::bindings
