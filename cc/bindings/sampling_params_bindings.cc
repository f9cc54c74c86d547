// How a request's tokens are chosen, and what is reported of them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "cc/bindings/bindings.h"
#include "cc/step/sampling_params.h"
#include "cc/step/step_result.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using step::SamplingParams;
using step::TokenLogprobs;

namespace {

using LogitBias = std::vector<std::pair<int32_t, float>>;
using TokenIds = std::vector<int32_t>;

// Ranges are checked when a request is submitted: they depend on the model's vocabulary.
void Init(SamplingParams* self, float temperature, int32_t top_k, float top_p, float min_p,
          float presence_penalty, float frequency_penalty, float repetition_penalty,
          LogitBias logit_bias, uint64_t seed, int32_t max_tokens, int32_t min_tokens,
          bool ignore_eos, TokenIds eos_token_ids, TokenIds stop_token_ids, int32_t logprobs,
          int32_t prompt_logprobs) {
  new (self) SamplingParams{.temperature = temperature,
                            .top_k = top_k,
                            .top_p = top_p,
                            .min_p = min_p,
                            .presence_penalty = presence_penalty,
                            .frequency_penalty = frequency_penalty,
                            .repetition_penalty = repetition_penalty,
                            .logit_bias = std::move(logit_bias),
                            .seed = seed,
                            .max_tokens = max_tokens,
                            .min_tokens = min_tokens,
                            .ignore_eos = ignore_eos,
                            .eos_token_ids = std::move(eos_token_ids),
                            .stop_token_ids = std::move(stop_token_ids),
                            .logprobs = logprobs,
                            .prompt_logprobs = prompt_logprobs};
}

}  // namespace

void BindSamplingParams(nb::module_& m) {
  nb::class_<SamplingParams>(m, "SamplingParams")
      .def("__init__", &Init, nb::kw_only(), nb::arg("temperature") = 1.0f, nb::arg("top_k") = 0,
           nb::arg("top_p") = 1.0f, nb::arg("min_p") = 0.0f, nb::arg("presence_penalty") = 0.0f,
           nb::arg("frequency_penalty") = 0.0f, nb::arg("repetition_penalty") = 1.0f,
           nb::arg("logit_bias") = LogitBias(), nb::arg("seed") = 0, nb::arg("max_tokens") = 16,
           nb::arg("min_tokens") = 0, nb::arg("ignore_eos") = false,
           nb::arg("eos_token_ids") = TokenIds(), nb::arg("stop_token_ids") = TokenIds(),
           nb::arg("logprobs") = SamplingParams::kNoLogprobs,
           nb::arg("prompt_logprobs") = SamplingParams::kNoLogprobs)
      .def_ro("temperature", &SamplingParams::temperature)
      .def_ro("top_k", &SamplingParams::top_k)
      .def_ro("top_p", &SamplingParams::top_p)
      .def_ro("min_p", &SamplingParams::min_p)
      .def_ro("presence_penalty", &SamplingParams::presence_penalty)
      .def_ro("frequency_penalty", &SamplingParams::frequency_penalty)
      .def_ro("repetition_penalty", &SamplingParams::repetition_penalty)
      .def_ro("logit_bias", &SamplingParams::logit_bias)
      .def_ro("seed", &SamplingParams::seed)
      .def_ro("max_tokens", &SamplingParams::max_tokens)
      .def_ro("min_tokens", &SamplingParams::min_tokens)
      .def_ro("ignore_eos", &SamplingParams::ignore_eos)
      .def_ro("eos_token_ids", &SamplingParams::eos_token_ids)
      .def_ro("stop_token_ids", &SamplingParams::stop_token_ids)
      .def_ro("logprobs", &SamplingParams::logprobs)
      .def_ro("prompt_logprobs", &SamplingParams::prompt_logprobs);
  nb::class_<TokenLogprobs>(m, "TokenLogprobs")
      .def_ro("token_id", &TokenLogprobs::token_id)
      .def_ro("logprob", &TokenLogprobs::logprob)
      .def_ro("rank", &TokenLogprobs::rank)
      .def_ro("top", &TokenLogprobs::top);
}

}  // namespace pagemill::bindings
