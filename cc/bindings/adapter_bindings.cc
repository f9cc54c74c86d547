// Adapters: the weights of one, and those that a runner's requests may name.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/bindings/bindings.h"
#include "cc/bindings/device_executor_holder.h"
#include "cc/bindings/status_error.h"
#include "cc/program/adapters/adapter_weights.h"
#include "cc/program/native_executor.h"
#include "cc/runner/adapters/adapter_store.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using program::AdapterWeights;
using runner::AdapterStore;

namespace {

using Array = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
// Name, expert, lora_A, lora_B, scale, gain, offset.
using Layer = std::tuple<std::string, int64_t, std::optional<Array>, std::optional<Array>, float,
                         std::optional<Array>, std::optional<Array>>;

// float32, float16, or uint16 for bf16, which numpy has no type for.
TensorView ViewOf(const std::optional<Array>& array) {
  if (!array) return {};
  TensorView view;
  view.data = const_cast<void*>(array->data());
  if (array->dtype() == nb::dtype<float>()) {
    view.dtype = DType::kF32;
  } else if (array->dtype() == nb::dtype<uint16_t>()) {
    view.dtype = DType::kBF16;
  } else if (array->dtype().code == static_cast<uint8_t>(nb::dlpack::dtype_code::Float) &&
             array->dtype().bits == 16) {
    view.dtype = DType::kF16;
  } else {
    ThrowIfError(InvalidArgument("arrays must be float32, float16, or bf16 as uint16"));
  }
  if (array->ndim() < 1 || array->ndim() > 2) {
    ThrowIfError(InvalidArgument("arrays must have one or two dimensions"));
  }
  view.rank = static_cast<int32_t>(array->ndim());
  for (size_t i = 0; i < array->ndim(); ++i) view.shape[i] = static_cast<int64_t>(array->shape(i));
  view.row_stride_bytes = RowBytes(view.dtype, view.RowElements());
  return view;
}

template <typename Executor>
std::shared_ptr<const AdapterWeights> MakeWeights(const Executor& executor,
                                                  const std::vector<Layer>& layers) {
  std::vector<AdapterWeights::Layer> converted;
  for (const auto& [name, expert, a, b, scale, gain, offset] : layers) {
    converted.push_back({.name = name,
                         .expert = expert,
                         .tensors = {.a = ViewOf(a),
                                     .b = ViewOf(b),
                                     .scale = scale,
                                     .gain = ViewOf(gain),
                                     .offset = ViewOf(offset)}});
  }
  nb::gil_scoped_release release;
  return ValueOrThrow(executor.MakeAdapter(converted));
}

// Of an executor on a device: weights that fit into a slot of its memory.
std::shared_ptr<const AdapterWeights> MakeForDevice(const DeviceExecutorHolder& device,
                                                    const std::vector<Layer>& layers) {
  std::shared_ptr<const AdapterWeights> weights = MakeWeights(*device.executor, layers);
  ThrowIfError(device.executor->CheckAdapter(*weights));
  return weights;
}

}  // namespace

void BindAdapters(nb::module_& m) {
  nb::class_<AdapterWeights>(m, "AdapterWeights").def_prop_ro("bytes", &AdapterWeights::bytes);
  // `layers` has (name, expert, lora_A, lora_B, scale, gain, offset) for each; arrays may be None.
  m.def(
      "make_adapter",
      [](const program::NativeExecutor& executor, const std::vector<Layer>& layers) {
        return MakeWeights(executor, layers);
      },
      nb::arg("executor"), nb::arg("layers"));
  m.def("make_adapter", &MakeForDevice, nb::arg("executor"), nb::arg("layers"));
  nb::class_<AdapterStore>(m, "AdapterStore")
      .def(nb::init<>())
      .def(
          "add",
          [](AdapterStore& self, uint64_t id, runner::AdapterParts parts) {
            ThrowIfError(self.Add(step::AdapterId(id), std::move(parts)));
          },
          nb::arg("adapter"), nb::arg("parts"))
      .def(
          "remove",
          [](AdapterStore& self, uint64_t id) {
            nb::gil_scoped_release release;  // may free much memory
            self.Remove(step::AdapterId(id));
          },
          nb::arg("adapter"));
}

}  // namespace pagemill::bindings
