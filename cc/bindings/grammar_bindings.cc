// Grammars whose matchers are C++ (cc/grammar).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/bindings/bindings.h"
#include "cc/bindings/gil.h"
#include "cc/bindings/matcher_factory.h"
#include "cc/bindings/python_object.h"
#include "cc/bindings/status_error.h"
#include "cc/grammar/reasoning_matcher.h"
#include "cc/grammar/schema_compiler.h"
#include "cc/grammar/transcript_matcher.h"
#include "cc/step/token_matcher.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using grammar::SchemaCompiler;
using step::TokenMatcher;

namespace {

grammar::Tokenize PythonTokenize(nb::callable tokenize) {
  auto shared = std::make_shared<const SharedObject>(std::move(tokenize));
  return [shared](const std::string& text) -> std::vector<int32_t> {
    Gil gil;
    try {
      return nb::cast<std::vector<int32_t>>(shared->get()(nb::bytes(text.data(), text.size())));
    } catch (const std::exception&) {
      return {};  // what is forced is a guess: without it the grammar holds as well
    }
  };
}

std::unique_ptr<SchemaCompiler> MakeCompiler(const std::vector<nb::bytes>& token_bytes,
                                             std::vector<int32_t> eos_token_ids,
                                             nb::callable tokenize) {
  grammar::SchemaCompilerOptions options = {.eos_token_ids = std::move(eos_token_ids),
                                            .tokenize = PythonTokenize(std::move(tokenize))};
  options.token_bytes.reserve(token_bytes.size());
  for (const nb::bytes& bytes : token_bytes) {
    options.token_bytes.emplace_back(bytes.c_str(), bytes.size());
  }
  nb::gil_scoped_release release;
  return ValueOrThrow(SchemaCompiler::Create(std::move(options)));
}

MatcherFactory Compile(SchemaCompiler& self, const std::string& schema) {
  nb::gil_scoped_release release;
  return {ValueOrThrow(self.Compile(schema))};
}

MatcherFactory WithReasoning(const MatcherFactory& self, std::vector<int32_t> openers,
                             std::vector<int32_t> closers, bool begins_within) {
  return {grammar::BehindReasoning(self.make,
                                   {std::move(openers), std::move(closers), begins_within})};
}

MatcherFactory TranscriptMatchers(int32_t vocab_size, int32_t end, std::vector<int32_t> suppressed,
                                  std::vector<int32_t> suppressed_first, int32_t timestamp_begin,
                                  int32_t max_first_timestamp) {
  return {ValueOrThrow(grammar::TranscriptMatchers({.vocab_size = vocab_size,
                                                    .end = end,
                                                    .suppressed = std::move(suppressed),
                                                    .suppressed_first = std::move(suppressed_first),
                                                    .timestamp_begin = timestamp_begin,
                                                    .max_first_timestamp = max_first_timestamp}))};
}

using Mask = nb::ndarray<uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void FillMask(TokenMatcher& self, const Mask& mask) {
  ThrowIfError(self.FillMask({mask.data(), mask.size()}));
}

std::vector<int32_t> Forced(TokenMatcher& self, size_t most) {
  std::vector<int32_t> token_ids;
  self.AppendForced(most, &token_ids);
  return token_ids;
}

}  // namespace

void BindGrammars(nb::module_& m) {
  nb::class_<TokenMatcher>(m, "TokenMatcher")
      .def("fill_mask", &FillMask, nb::arg("mask"))
      .def("accept", &TokenMatcher::Accept, nb::arg("token_id"))
      .def("rollback", &TokenMatcher::Rollback, nb::arg("num_tokens"))
      .def("forced", &Forced, nb::arg("most"));
  nb::class_<MatcherFactory>(m, "MatcherFactory")
      .def("__call__", [](const MatcherFactory& self) { return ValueOrThrow(self.make()); })
      .def("with_reasoning", &WithReasoning, nb::arg("openers"), nb::arg("closers"),
           nb::arg("begins_within"));
  m.def("transcript_matchers", &TranscriptMatchers, nb::arg("vocab_size"), nb::arg("end"),
        nb::arg("suppressed"), nb::arg("suppressed_first"), nb::arg("timestamp_begin"),
        nb::arg("max_first_timestamp"));
  nb::class_<SchemaCompiler>(m, "SchemaCompiler")
      .def(nb::new_(&MakeCompiler), nb::arg("token_bytes"), nb::arg("eos_token_ids"),
           nb::arg("tokenize"))
      .def("compile", &Compile, nb::arg("schema"));
}

}  // namespace pagemill::bindings
