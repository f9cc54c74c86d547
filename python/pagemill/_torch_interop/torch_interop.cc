// File: python/pagemill/_torch_interop/torch_interop.cc
// Arrays become torch tensors, and tensors arrays, over the same memory. An extension of its own,
// because torch's casters are pybind11's; it is compiled against the headers of the torch that is
// installed, which bring pybind11.
//
//   tensor = as_tensor(array)   # int32 or float32, C-contiguous; may be read-only
//   array = as_array(tensor)    # float32 on the CPU, contiguous
//
// Each keeps the memory's owner alive. A tensor over a read-only array must not be written to: torch
// has no such tensors, which is why torch.from_numpy() warns of one, and this does not.
#include <ATen/ops/from_blob.h>
#include <pybind11/numpy.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <stdexcept>
#include <vector>

namespace {

namespace py = pybind11;

at::ScalarType TypeOf(const py::array& array) {
  if (py::isinstance<py::array_t<int32_t>>(array)) return at::kInt;
  if (py::isinstance<py::array_t<float>>(array)) return at::kFloat;
  throw py::type_error("as_tensor() takes arrays of int32 and float32");
}

at::Tensor AsTensor(const py::array& array) {
  const at::ScalarType type = TypeOf(array);
  if (!(array.flags() & py::array::c_style)) {
    throw py::value_error("as_tensor() takes C-contiguous arrays");
  }
  const std::vector<int64_t> shape(array.shape(), array.shape() + array.ndim());
  // The last use may be on another thread, without the GIL.
  auto* owner = new py::array(array);
  const auto release = [owner](void*) {
    py::gil_scoped_acquire gil;
    delete owner;
  };
  return at::from_blob(const_cast<void*>(array.data()), shape, release, type);
}

py::array AsArray(const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kFloat || !tensor.device().is_cpu() || !tensor.is_contiguous()) {
    throw py::value_error("as_array() takes contiguous float32 tensors on the CPU");
  }
  auto kept = std::make_unique<at::Tensor>(tensor);
  py::capsule owner(kept.get(), [](void* p) { delete static_cast<at::Tensor*>(p); });
  const float* data = kept.release()->const_data_ptr<float>();
  return py::array_t<float>(tensor.sizes().vec(), data, owner);
}

}  // namespace

PYBIND11_MODULE(_interop, m) {
  m.def("as_tensor", &AsTensor, py::arg("array"));
  m.def("as_array", &AsArray, py::arg("tensor"));
}
