// The extension module `pagemill._native._core`.
#include <nanobind/nanobind.h>

#include "cc/bindings/bindings.h"

NB_MODULE(_core, m) {
  m.doc() = "The compiled core of Pagemill. Import it through pagemill._native.";
  m.attr("version") = PAGEMILL_VERSION;
  pagemill::bindings::BindStatus(m);
  pagemill::bindings::BindProgram(m);
  pagemill::bindings::BindExecutors(m);
  pagemill::bindings::BindRunner(m);
  pagemill::bindings::BindSamplingParams(m);
  pagemill::bindings::BindEngine(m);
}
