// File: cc/bindings/collectable.h
// Lets Python's garbage collector see and break cycles through a bound class that keeps Python
// objects: an engine whose log function is a method of the object that keeps the engine, for
// example.
//
//   nb::class_<Holder>(m, "Holder", nb::type_slots(CollectableSlots<Holder>::kSlots));
//
// Holder has
//   int Visit(visitproc visit, void* arg);  // Py_VISIT of each object that it keeps
//   void Forget();  // drops those that it can do without: it is garbage, but may still be in use
//   by
//                   // other garbage and by the engine's thread
#ifndef PAGEMILL_CC_BINDINGS_COLLECTABLE_H_
#define PAGEMILL_CC_BINDINGS_COLLECTABLE_H_

#include <nanobind/nanobind.h>

namespace pagemill::bindings {

template <typename Holder>
struct CollectableSlots {
  static int Traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (!nanobind::inst_ready(self)) return 0;
    return nanobind::inst_ptr<Holder>(self)->Visit(visit, arg);
  }
  static int Clear(PyObject* self) {
    if (nanobind::inst_ready(self)) nanobind::inst_ptr<Holder>(self)->Forget();
    return 0;
  }
  static inline const PyType_Slot kSlots[] = {
      {Py_tp_traverse, reinterpret_cast<void*>(Traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(Clear)},
      {0, nullptr},
  };
};

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_COLLECTABLE_H_
