// File: cc/bindings/python_object.h
// A Python object that threads of C++ hold.
#ifndef PAGEMILL_CC_BINDINGS_PYTHON_OBJECT_H_
#define PAGEMILL_CC_BINDINGS_PYTHON_OBJECT_H_

#include <nanobind/nanobind.h>

#include <utility>

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

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_PYTHON_OBJECT_H_
