// Executors: the native one, and one around a Python callable.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/bindings/batch_arrays.h"
#include "cc/bindings/bindings.h"
#include "cc/bindings/collectable.h"
#include "cc/bindings/python_executor.h"
#include "cc/bindings/rank_cpus.h"
#include "cc/bindings/status_error.h"
#include "cc/bindings/target.h"
#include "cc/comm/world.h"
#include "cc/program/native_executor.h"
#include "cc/program/program.h"
#include "cc/tensor/to_float.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using program::ExecutorOptions;
using program::NativeExecutor;
using program::Program;

namespace {

// Ids index the rows of tables, unless the op has a row for all `outside`; a batch from Python may
// hold anything.
void RequireIdsInTables(const NativeExecutor& executor, const ops::StepBatch& batch) {
  const Program& program = executor.program();
  for (size_t i = 0; i < program.ops().size(); ++i) {
    const program::Op& op = program.ops()[i];
    const ops::TableInputs& inputs = executor.kernels().definitions[i]->traits.table;
    if (inputs.ids < 0 || op.attributes.GetInt("outside", -1) >= 0) continue;
    const program::Value& ids = program.value(op.inputs[static_cast<size_t>(inputs.ids)]);
    const int64_t rows = program.value(op.inputs[static_cast<size_t>(inputs.table)]).shape.dims[0];
    for (const auto& info : ops::kStepArrays) {
      const int32_t* array = batch.*info.data;
      if (info.name != ids.name || array == nullptr) continue;
      if (std::all_of(array, array + ops::NumRows(info, batch) * info.columns,
                      [rows](int32_t id) { return id >= 0 && id < rows; })) {
        continue;
      }
      ThrowIfError(InvalidArgument(ids.name + " must be from 0 to " + std::to_string(rows - 1)));
    }
  }
}

// Likewise the slots of adapters: -1 is none.
void RequireAdapterSlots(const NativeExecutor& executor, const ops::StepBatch& batch) {
  const int32_t slots = executor.options().max_adapters;
  for (int32_t t = 0; batch.adapter_slots != nullptr && t < batch.num_tokens; ++t) {
    if (batch.adapter_slots[t] >= -1 && batch.adapter_slots[t] < slots) continue;
    ThrowIfError(
        InvalidArgument("adapter_slots must be from -1 to " + std::to_string(slots - 1)));
  }
}

// A numpy array that owns a copy of the view, as float32.
nb::object CopyOf(const TensorView& view) {
  const size_t size = static_cast<size_t>(view.Elements());
  auto copy = std::make_unique<float[]>(size + 1);
  ToFloat(view, copy.get());
  float* data = copy.release();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  size_t shape[TensorView::kMaxRank];
  std::copy_n(view.shape.begin(), view.rank, shape);
  return nb::cast(
      nb::ndarray<nb::numpy, float>(data, static_cast<size_t>(view.rank), shape, owner));
}

nb::dict Execute(NativeExecutor& self, const nb::dict& arrays) {
  const BatchArrays batch(arrays, self.program(), self.memory_plan().kv);
  RequireIdsInTables(self, batch.batch());
  RequireAdapterSlots(self, batch.batch());
  program::ExecutorOutput output;
  Status status;
  {
    nb::gil_scoped_release release;
    status = self.Execute(batch.batch(), &output);
  }
  ThrowIfError(std::move(status));
  nb::dict outputs;
  for (const program::OutputView& o : output.outputs) {
    outputs[nb::str(o.name.data(), o.name.size())] = CopyOf(o.view);
  }
  return outputs;
}

std::string KvFingerprint(const NativeExecutor& self) {
  nb::gil_scoped_release release;  // reads files
  return ToHex(self.kv_fingerprint());
}

// A rank's compute threads, and what they touch first, stay on its share of the CPUs.
std::unique_ptr<NativeExecutor> CreateNative(const std::string& text, ExecutorOptions options,
                                             std::shared_ptr<comm::World> world,
                                             NativeExecutor* host) {
  nb::gil_scoped_release release;  // maps files
  std::vector<int32_t> cpus;
  if (world != nullptr) cpus = RankCpus(world->local());
  // More ranks than cores: one thread each.
  if (world != nullptr && cpus.empty() && options.num_threads == 0) options.num_threads = 1;
  if (host != nullptr) options.num_threads = host->thread_pool()->num_threads();
  const device::ScopedAffinity pinned(cpus);
  program::Target target = CpuTarget();
  if (world != nullptr) target.groups = world->groups();
  return ValueOrThrow(
      NativeExecutor::Create(ValueOrThrow(Program::Parse(text)), target, options, host));
}

void BindNativeExecutor(nb::module_& m) {
  nb::class_<NativeExecutor>(m, "NativeExecutor")
      .def(nb::new_(&CreateNative), nb::arg("text"), nb::arg("options"),
           nb::arg("world").none() = nb::none(), nb::arg("host").none() = nb::none())
      .def("__call__", &Execute, nb::arg("batch"))
      .def_prop_ro(
          "table_block_sizes",
          [](const NativeExecutor& self) { return self.memory_plan().kv.TableBlockSizes(); })
      .def_prop_ro("memory_plan", &NativeExecutor::memory_plan)
      .def_prop_ro("packed_from_cache",
                   [](const NativeExecutor& self) { return self.packed_weights().from_cache(); })
      .def_prop_ro(
          "pack_cache_error",
          [](const NativeExecutor& self) { return self.packed_weights().store_status().message(); })
      .def_prop_ro(
          "pack_cache_damage",
          [](const NativeExecutor& self) { return self.packed_weights().damage().message(); })
      .def_prop_ro("memory_placement", &NativeExecutor::memory_placement)
      .def("kv_fingerprint", &KvFingerprint);
}

}  // namespace

std::string ToHex(const Digest128& digest) {
  char text[33];
  std::snprintf(text, sizeof(text), "%016" PRIx64 "%016" PRIx64, digest.high, digest.low);
  return text;
}

void BindExecutors(nb::module_& m) {
  BindNativeExecutor(m);
  nb::class_<PythonExecutor>(m, "PythonExecutor",
                             nb::type_slots(CollectableSlots<PythonExecutor>::kSlots))
      .def(nb::init<nb::callable>(), nb::arg("callable"));
}

}  // namespace pagemill::bindings
