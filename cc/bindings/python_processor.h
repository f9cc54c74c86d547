// File: cc/bindings/python_processor.h
// Logits processors that are Python functions. The GIL is held for each call and no longer; an
// exception fails the request with its message.
#ifndef PAGEMILL_CC_BINDINGS_PYTHON_PROCESSOR_H_
#define PAGEMILL_CC_BINDINGS_PYTHON_PROCESSOR_H_

#include <nanobind/nanobind.h>

#include "cc/step/logits_processor.h"

namespace pagemill::bindings {

// `processor(prompt_token_ids, output_token_ids, logits)` changes `logits`, float32 [vocab_size],
// in place; the others are int32 arrays that it must not change. All are valid during the call.
// It keeps the obligations of step::LogitsProcessor.
step::LogitsProcessor PythonProcessor(nanobind::callable processor);

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_PYTHON_PROCESSOR_H_
