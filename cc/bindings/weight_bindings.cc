// Values of weights as they are stored.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string_view.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cc/bindings/bindings.h"
#include "cc/bindings/status_error.h"
#include "cc/ops/quantized/converted_blocks.h"
#include "cc/tensor/dtype.h"

namespace pagemill::bindings {

namespace nb = nanobind;

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void DequantizeBlocks(std::string_view name, const Bytes& blocks, const Floats& out) {
  const std::optional<DType> dtype = ParseDType(name);
  if (!dtype || !IsConvertedFormat(*dtype)) {
    ThrowIfError(InvalidArgument(std::string(name) + " is not a format that is converted"));
  }
  const int64_t count = static_cast<int64_t>(blocks.size()) / Info(*dtype).block_bytes;
  const int64_t elements = count * Info(*dtype).block_elements;
  if (RowBytes(*dtype, elements) != static_cast<int64_t>(blocks.size()) ||
      elements != static_cast<int64_t>(out.size())) {
    ThrowIfError(InvalidArgument(std::to_string(blocks.size()) + " bytes of " + std::string(name) +
                                 " are not " + std::to_string(out.size()) + " elements"));
  }
  nb::gil_scoped_release release;
  ops::DequantizeConverted(*dtype, blocks.data(), elements, out.data());
}

}  // namespace

void BindWeights(nb::module_& m) {
  m.def("dequantize_blocks", &DequantizeBlocks, nb::arg("dtype"), nb::arg("blocks").noconvert(),
        nb::arg("out").noconvert());
}

}  // namespace pagemill::bindings
