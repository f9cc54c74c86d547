// How a request's tokens are chosen, and what is reported of them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "cc/bindings/bindings.h"
#include "cc/bindings/fields.h"
#include "cc/bindings/wire.h"
#include "cc/step/sampling_params.h"
#include "cc/step/step_result.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using step::SamplingParams;
using step::TokenLogprobs;

void BindSamplingParams(nb::module_& m) {
  nb::class_<SamplingParams> params(m, "SamplingParams");
  // Ranges are checked when a request is submitted: they depend on the model's vocabulary.
  params.def(
      "__init__",
      [](SamplingParams* self, const nb::kwargs& fields) {
        SamplingParams made;
        SetFields(fields, &made);
        new (self) SamplingParams(std::move(made));
      },
      nb::arg("fields"));
  BindFields(params);
  BindWire(params);
  params.attr("fields") = FieldTable<SamplingParams>();
  nb::class_<TokenLogprobs>(m, "TokenLogprobs")
      .def_ro("token_id", &TokenLogprobs::token_id)
      .def_ro("logprob", &TokenLogprobs::logprob)
      .def_ro("rank", &TokenLogprobs::rank)
      .def_ro("top", &TokenLogprobs::top)
      .def("__repr__",
           [](const TokenLogprobs& self) {
             return nb::str("TokenLogprobs(token_id={}, logprob={}, rank={}, top={})")
                 .format(self.token_id, self.logprob, self.rank, self.top);
           })
      .def("__getstate__", &Wire<TokenLogprobs>::Take)
      .def("__setstate__", [](TokenLogprobs& self, LogprobsParts parts) {
        new (&self) TokenLogprobs(Wire<TokenLogprobs>::Make(std::move(parts)));
      });
}

}  // namespace pagemill::bindings
