// File: cc/bindings/gil.h
// The GIL, on threads of C++ that take it often.
#ifndef PAGEMILL_CC_BINDINGS_GIL_H_
#define PAGEMILL_CC_BINDINGS_GIL_H_

#include <nanobind/nanobind.h>

namespace pagemill::bindings {

// Holds the GIL. Unlike nb::gil_scoped_acquire it leaves the thread's state with Python, which else
// makes one for each call, with a stack for its frames, and frees both: 20 us, more than the calls
// themselves. A state lives as long as the interpreter: the thread cannot free it at its end, because
// who joins the thread may hold the GIL.
class Gil {
 public:
  Gil() {
    if (PyGILState_GetThisThreadState() == nullptr) {
      PyGILState_Ensure();
      PyEval_SaveThread();
    }
    state_ = PyGILState_Ensure();
  }
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_GIL_H_
