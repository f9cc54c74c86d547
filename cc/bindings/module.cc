// The extension module `pagemill._native._core`.
#include <nanobind/nanobind.h>

#include "cc/bindings/bindings.h"

NB_MODULE(_core, m) {
  // The interpreter ends while event loops and threads still hold objects of this module; what the
  // process leaves behind then is no leak that a user could do anything about.
  nanobind::set_leak_warnings(false);
  m.doc() = "The compiled core of Pagemill. Import it through pagemill._native.";
  m.attr("version") = PAGEMILL_VERSION;
  pagemill::bindings::BindStatus(m);
  pagemill::bindings::BindProgram(m);
  pagemill::bindings::BindRanks(m);
  pagemill::bindings::BindExecutors(m);
  pagemill::bindings::BindDevices(m);
  pagemill::bindings::BindAdapters(m);
  pagemill::bindings::BindRunnerLimits(m);
  pagemill::bindings::BindWatermark(m);
  pagemill::bindings::BindRunner(m);
  pagemill::bindings::BindSamplingParams(m);
  pagemill::bindings::BindKvTierOptions(m);
  pagemill::bindings::BindInputs(m);
  pagemill::bindings::BindGrammars(m);
  pagemill::bindings::BindEngine(m);
  pagemill::bindings::BindEngineClient(m);
  pagemill::bindings::BindSimulator(m);
  pagemill::bindings::BindRouter(m);
  pagemill::bindings::BindMachineLimits(m);
  pagemill::bindings::BindWeights(m);
}
