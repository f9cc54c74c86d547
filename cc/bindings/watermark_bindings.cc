// The watermark of an engine's texts (cc/sampling/watermark/watermark.h).
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <vector>

#include "cc/bindings/bindings.h"
#include "cc/sampling/watermark/watermark.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using sampling::Watermark;

void BindWatermark(nb::module_& m) {
  nb::class_<Watermark>(m, "Watermark")
      .def(
          "__init__",
          [](Watermark* self, uint64_t key, int32_t context_tokens) {
            if (context_tokens < 1) throw nb::value_error("context_tokens must be at least 1");
            new (self) Watermark({.key = key, .context_tokens = context_tokens});
          },
          nb::arg("key"), nb::kw_only(), nb::arg("context_tokens") = 4)
      .def(
          "numbers_of",
          [](const Watermark& self, const std::vector<int32_t>& token_ids) {
            return self.NumbersOf(token_ids);
          },
          nb::arg("token_ids"));
}

}  // namespace pagemill::bindings
