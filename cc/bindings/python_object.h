// File: cc/bindings/python_object.h
// Python objects that threads of C++ hold and call.
#ifndef PAGEMILL_CC_BINDINGS_PYTHON_OBJECT_H_
#define PAGEMILL_CC_BINDINGS_PYTHON_OBJECT_H_

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <exception>
#include <span>
#include <string>
#include <utility>

#include "cc/base/status.h"
#include "cc/bindings/gil.h"

namespace pagemill::bindings {

// Keeps an object that any thread may drop.
class SharedObject {
 public:
  explicit SharedObject(nanobind::object object) : object_(std::move(object)) {}
  ~SharedObject() {
    Gil gil;
    object_ = nanobind::object();
  }
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;
  const nanobind::object& get() const { return object_; }

 private:
  nanobind::object object_;
};

// Calls Python, with the GIL; `call` returns a Status or a StatusOr. An exception fails `what`.
template <typename Call>
auto Guarded(const char* what, const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& e) {  // python_error too: its text is Python's traceback
    return Internal(std::string(what) + " failed: " + e.what());
  }
}

// `values` as an array of numpy, valid as long as they are.
template <typename T>
nanobind::object ArrayOf(std::span<T> values) {
  using Array = nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>;
  return nanobind::cast(Array(values.data(), {values.size()}), nanobind::rv_policy::reference);
}

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_PYTHON_OBJECT_H_
