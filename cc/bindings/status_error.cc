#include "cc/bindings/status_error.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "cc/bindings/bindings.h"

namespace pagemill::bindings {

namespace nb = nanobind;

void BindStatus(nb::module_& m) {
  const std::string qualified = nb::cast<std::string>(m.attr("__name__")) + ".StatusError";
  PyObject* type = PyErr_NewExceptionWithDoc(
      qualified.c_str(),
      "A refusal or failure of the core: `code`, `message`, `retry_after_s` (0 = not known).",
      nullptr, nullptr);
  if (type == nullptr) throw nb::python_error();
  m.attr("StatusError") = nb::steal(type);  // the module keeps it as long as the translator lives
  nb::register_exception_translator(
      [](const std::exception_ptr& pointer, void* payload) {
        try {
          std::rethrow_exception(pointer);
        } catch (const StatusException& e) {
          const nb::handle error_type(static_cast<PyObject*>(payload));
          nb::object error = error_type(e.what());
          error.attr("code") = std::string(StatusCodeName(e.status().code()));
          error.attr("retry_after_s") = e.status().retry_after_s();
          error.attr("message") = e.status().message();
          PyErr_SetObject(error_type.ptr(), error.ptr());
        }
      },
      type);
}

}  // namespace pagemill::bindings
