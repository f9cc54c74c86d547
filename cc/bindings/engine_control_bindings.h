// File: cc/bindings/engine_control_bindings.h
// What Python may do to requests under way and to the engine as a whole. Arguments and results are
// plain data (numbers, texts, bytes, lists, dicts), so that they may cross processes as they are.
#ifndef PAGEMILL_CC_BINDINGS_ENGINE_CONTROL_BINDINGS_H_
#define PAGEMILL_CC_BINDINGS_ENGINE_CONTROL_BINDINGS_H_

#include <nanobind/nanobind.h>

#include "cc/bindings/engine_holder.h"

namespace pagemill::bindings {

void BindEngineControl(nanobind::class_<EngineHolder>& engine);

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_ENGINE_CONTROL_BINDINGS_H_
