// File: cc/bindings/bindings.h
// The parts of the extension module `pagemill._native._core`, one function per subject; module.cc
// calls them in this order. Bindings convert and call; they decide nothing. The Python face is
// python/pagemill/_native/_core.pyi.
#ifndef PAGEMILL_CC_BINDINGS_BINDINGS_H_
#define PAGEMILL_CC_BINDINGS_BINDINGS_H_

#include <nanobind/nanobind.h>

#include <string>

#include "cc/base/xxh3.h"

namespace pagemill::bindings {

// 32 hexadecimal digits.
std::string ToHex(const Digest128& digest);

void BindStatus(nanobind::module_& m);
void BindProgram(nanobind::module_& m);
void BindExecutors(nanobind::module_& m);
void BindRanks(nanobind::module_& m);
void BindDevices(nanobind::module_& m);
void BindAdapters(nanobind::module_& m);
void BindRunnerLimits(nanobind::module_& m);
void BindWatermark(nanobind::module_& m);
void BindRunner(nanobind::module_& m);
void BindSamplingParams(nanobind::module_& m);
void BindInputs(nanobind::module_& m);
void BindKvTierOptions(nanobind::module_& m);
void BindGrammars(nanobind::module_& m);
void BindEngine(nanobind::module_& m);
void BindEngineClient(nanobind::module_& m);
void BindSimulator(nanobind::module_& m);
void BindRouter(nanobind::module_& m);
void BindMachineLimits(nanobind::module_& m);
void BindWeights(nanobind::module_& m);

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_BINDINGS_H_
