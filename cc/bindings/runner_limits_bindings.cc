// What a runner may be given: its limits, and the groups of its KV cache.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cc/bindings/bindings.h"
#include "cc/engine/runner.h"
#include "cc/step/kv_group_options.h"

namespace pagemill::bindings {

namespace nb = nanobind;
using engine::RunnerLimits;
using step::KvGroupOptions;

namespace {

void BindKvGroupOptions(nb::module_& m) {
  nb::class_<KvGroupOptions>(m, "KvGroupOptions")
      .def(
          "__init__",
          [](KvGroupOptions* self, std::string kind, int32_t block_size, int32_t window_tokens,
             bool checkpoints, int32_t recent_states) {
            new (self) KvGroupOptions{.kind = std::move(kind),
                                      .block_size = block_size,
                                      .window_tokens = window_tokens,
                                      .checkpoints = checkpoints
                                                         ? step::StateCheckpoints::kLastBoundary
                                                         : step::StateCheckpoints::kNone,
                                      .recent_states = recent_states};
          },
          nb::kw_only(), nb::arg("kind") = "full", nb::arg("block_size") = 0,
          nb::arg("window_tokens") = 0, nb::arg("checkpoints") = true,
          nb::arg("recent_states") = 0)
      .def_ro("kind", &KvGroupOptions::kind)
      .def_ro("block_size", &KvGroupOptions::block_size)
      .def_ro("window_tokens", &KvGroupOptions::window_tokens)
      .def_ro("recent_states", &KvGroupOptions::recent_states);
}

}  // namespace

void BindRunnerLimits(nb::module_& m) {
  BindKvGroupOptions(m);
  nb::class_<RunnerLimits>(m, "RunnerLimits")
      .def(
          "__init__",
          [](RunnerLimits* self, int32_t max_num_tokens, int32_t max_num_seqs,
             int32_t max_num_logits_rows, int32_t max_model_len, int32_t vocab_size,
             int32_t num_blocks, int32_t block_size, std::vector<KvGroupOptions> kv_groups,
             bool chunked_prefill, bool prefix_caching, bool pooling, bool token_rows,
             int32_t max_draft_tokens, int32_t max_forced_tokens, int32_t max_encoder_tokens,
             int32_t encoder_cache_tokens, int32_t max_adapters,
             int32_t routed_experts_per_token) {
            new (self) RunnerLimits{.max_num_tokens = max_num_tokens,
                                    .max_num_seqs = max_num_seqs,
                                    .max_num_logits_rows = max_num_logits_rows,
                                    .max_model_len = max_model_len,
                                    .vocab_size = vocab_size,
                                    .num_blocks = num_blocks,
                                    .block_size = block_size,
                                    .kv_groups = std::move(kv_groups),
                                    .max_adapters = max_adapters,
                                    .max_encoder_tokens = max_encoder_tokens,
                                    .encoder_cache_tokens = encoder_cache_tokens,
                                    .chunked_prefill = chunked_prefill,
                                    .prefix_caching = prefix_caching,
                                    .max_draft_tokens = max_draft_tokens,
                                    .max_forced_tokens = max_forced_tokens,
                                    .pooling = pooling,
                                    .token_rows = token_rows,
                                    .routed_experts_per_token = routed_experts_per_token};
          },
          nb::kw_only(), nb::arg("max_num_tokens") = 2048, nb::arg("max_num_seqs") = 128,
          nb::arg("max_num_logits_rows") = 256, nb::arg("max_model_len") = 2048,
          nb::arg("vocab_size"), nb::arg("num_blocks"), nb::arg("block_size") = 16,
          nb::arg("kv_groups") = std::vector<KvGroupOptions>{KvGroupOptions{}},
          nb::arg("chunked_prefill") = true, nb::arg("prefix_caching") = true,
          nb::arg("pooling") = false, nb::arg("token_rows") = false,
          nb::arg("max_draft_tokens") = 0, nb::arg("max_forced_tokens") = 0,
          nb::arg("max_encoder_tokens") = 0, nb::arg("encoder_cache_tokens") = 0,
          nb::arg("max_adapters") = 0, nb::arg("routed_experts_per_token") = 0)
      .def_ro("max_num_tokens", &RunnerLimits::max_num_tokens)
      .def_ro("max_num_seqs", &RunnerLimits::max_num_seqs)
      .def_ro("max_num_logits_rows", &RunnerLimits::max_num_logits_rows)
      .def_ro("max_model_len", &RunnerLimits::max_model_len)
      .def_ro("vocab_size", &RunnerLimits::vocab_size)
      .def_ro("num_blocks", &RunnerLimits::num_blocks)
      .def_ro("block_size", &RunnerLimits::block_size)
      .def_ro("kv_groups", &RunnerLimits::kv_groups)
      .def_ro("chunked_prefill", &RunnerLimits::chunked_prefill)
      .def_ro("prefix_caching", &RunnerLimits::prefix_caching)
      .def_ro("max_draft_tokens", &RunnerLimits::max_draft_tokens)
      .def_ro("max_forced_tokens", &RunnerLimits::max_forced_tokens)
      .def_ro("max_encoder_tokens", &RunnerLimits::max_encoder_tokens)
      .def_ro("encoder_cache_tokens", &RunnerLimits::encoder_cache_tokens)
      .def_ro("max_adapters", &RunnerLimits::max_adapters)
      .def_ro("routed_experts_per_token", &RunnerLimits::routed_experts_per_token)
      .def_ro("pooling", &RunnerLimits::pooling)
      .def_ro("token_rows", &RunnerLimits::token_rows);
}

}  // namespace pagemill::bindings
