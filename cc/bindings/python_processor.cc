#include "cc/bindings/python_processor.h"

#include <nanobind/ndarray.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "cc/bindings/gil.h"
#include "cc/bindings/python_object.h"

namespace pagemill::bindings {

namespace nb = nanobind;

namespace {

template <typename T>
nb::object ArrayOf(std::span<T> values) {
  using Array = nb::ndarray<nb::numpy, T, nb::ndim<1>>;
  return nb::cast(Array(values.data(), {values.size()}), nb::rv_policy::reference);
}

}  // namespace

step::LogitsProcessor PythonProcessor(nb::callable processor) {
  auto shared = std::make_shared<const SharedObject>(std::move(processor));
  return [shared](const step::LogitsRowText& text, std::span<float> logits) -> Status {
    Gil gil;
    try {
      shared->get()(ArrayOf(text.prompt_token_ids), ArrayOf(text.output_token_ids),
                    ArrayOf(logits));
      return OkStatus();
    } catch (const std::exception& e) {  // nb::python_error too: its text is Python's traceback
      return Internal(std::string("the request's logits processor failed: ") + e.what());
    }
  };
}

}  // namespace pagemill::bindings
