// Executors: the native one, and one around a Python callable.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
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
#include "cc/comm/shared_memory_world.h"
#include "cc/program/native_executor.h"
#include "cc/program/program.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using program::ExecutorOptions;
using program::NativeExecutor;
using program::Program;

namespace {

// Ids index the rows of embedding tables; a batch from Python may hold anything.
void RequireIdsInTables(const Program& program, const BatchArrays& arrays) {
  for (const program::Op& op : program.ops()) {
    if (op.name != "embedding" || op.inputs.size() < 2) continue;
    const program::Value& ids = program.value(op.inputs[0]);
    const Int32Vector& array = ids.name == "positions" ? arrays.positions : arrays.token_ids;
    const int64_t rows = program.value(op.inputs[1]).shape.dims[0];
    const auto outside = [&](int32_t id) { return id < 0 || id >= rows; };
    if (std::any_of(array.data(), array.data() + array.size(), outside)) {
      ThrowIfError(InvalidArgument(ids.name + " must be from 0 to " + std::to_string(rows - 1)));
    }
  }
}

// A numpy array that owns a copy of the view's rows; None for rank 0.
nb::object CopyRows(const TensorView& view) {
  if (view.rank == 0) return nb::none();
  const size_t rows = static_cast<size_t>(view.shape[0]);
  const size_t columns = static_cast<size_t>(view.shape[1]);
  auto copy = std::make_unique<float[]>(rows * columns + 1);
  if (rows > 0) std::memcpy(copy.get(), view.data, rows * columns * sizeof(float));
  float* data = copy.release();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, float>(data, {rows, columns}, owner));
}

nb::tuple Execute(NativeExecutor& self, const BatchArrays& arrays) {
  const ExecutorOptions& options = self.options();
  RequireIdsInTables(self.program(), arrays);
  const ops::BatchView batch = arrays.ToBatchView(options.block_size, options.num_blocks);
  program::ExecutorOutput output;
  Status status;
  {
    nb::gil_scoped_release release;
    status = self.Execute(batch, &output);
  }
  ThrowIfError(std::move(status));
  return nb::make_tuple(CopyRows(output.logits), CopyRows(output.pooled));
}

std::string KvFingerprint(const NativeExecutor& self) {
  Digest128 digest;
  {
    nb::gil_scoped_release release;  // reads files
    digest = self.kv_fingerprint();
  }
  char text[33];
  std::snprintf(text, sizeof(text), "%016" PRIx64 "%016" PRIx64, digest.high, digest.low);
  return text;
}

// A rank's compute threads, and what they touch first, stay on its share of the CPUs.
std::unique_ptr<NativeExecutor> CreateNative(const std::string& text, ExecutorOptions options,
                                             std::shared_ptr<comm::SharedMemoryWorld> world) {
  nb::gil_scoped_release release;  // maps files
  std::vector<int32_t> cpus;
  if (world != nullptr) cpus = RankCpus(world->rank(), world->num_ranks());
  // More ranks than cores: one thread each.
  if (world != nullptr && cpus.empty() && options.num_threads == 0) options.num_threads = 1;
  const device::ScopedAffinity pinned(cpus);
  program::Target target = CpuTarget();
  if (world != nullptr) target.groups = world->groups();
  return ValueOrThrow(NativeExecutor::Create(ValueOrThrow(Program::Parse(text)), target, options));
}

void BindNativeExecutor(nb::module_& m) {
  nb::class_<NativeExecutor>(m, "NativeExecutor")
      .def(nb::new_(&CreateNative), nb::arg("text"), nb::arg("options"),
           nb::arg("world").none() = nb::none())
      .def(
          "execute",
          [](NativeExecutor& self, Int32Vector token_ids, Int32Vector positions,
             Int32Vector slot_mapping, Int32Vector query_start, Int32Vector seq_lens,
             Int32Matrix block_table, Int32Vector logits_rows) {
            return Execute(self, {token_ids, positions, slot_mapping, query_start, seq_lens,
                                  block_table, logits_rows});
          },
          nb::kw_only(), nb::arg("token_ids"), nb::arg("positions"), nb::arg("slot_mapping"),
          nb::arg("query_start"), nb::arg("seq_lens"), nb::arg("block_table"),
          nb::arg("logits_rows"))
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

void BindExecutors(nb::module_& m) {
  BindNativeExecutor(m);
  nb::class_<PythonExecutor>(m, "PythonExecutor",
                             nb::type_slots(CollectableSlots<PythonExecutor>::kSlots))
      .def(nb::init<nb::callable>(), nb::arg("callable"));
}

}  // namespace pagemill::bindings
