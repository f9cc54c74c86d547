#include "cc/bindings/python_processor.h"

#include <memory>
#include <span>
#include <utility>

#include "cc/bindings/gil.h"
#include "cc/bindings/python_object.h"

namespace pagemill::bindings {

namespace nb = nanobind;

step::LogitsProcessor PythonProcessor(nb::callable processor) {
  auto shared = std::make_shared<const SharedObject>(std::move(processor));
  return [shared](const step::LogitsRowText& text, std::span<float> logits) -> Status {
    Gil gil;
    return Guarded("the request's logits processor", [&]() -> Status {
      shared->get()(ArrayOf(text.prompt_token_ids), ArrayOf(text.output_token_ids),
                    ArrayOf(logits));
      return OkStatus();
    });
  };
}

}  // namespace pagemill::bindings
