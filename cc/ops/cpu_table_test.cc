#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "cc/ops/op.h"

namespace pagemill::ops {
namespace {

TEST(CpuTable, HoldsEveryOpOfTheProgramFormat) {
  // docs/program_format.md, "The ops".
  const std::string_view names[] = {"activation",
                                    "add",
                                    "add_rms_norm",
                                    "adjust_logits",
                                    "all_gather",
                                    "all_reduce",
                                    "all_reduce_add_rms_norm",
                                    "apply_adapter",
                                    "argmax",
                                    "attention",
                                    "draw_tokens",
                                    "embedding",
                                    "gated_activation",
                                    "gated_delta",
                                    "gated_recurrence",
                                    "kv_write",
                                    "layer_norm",
                                    "linear",
                                    "mask_tokens",
                                    "paged_attention",
                                    "pool",
                                    "rms_norm",
                                    "rotary",
                                    "scatter_rows",
                                    "score_tokens",
                                    "select_rows",
                                    "rotary_kv_write",
                                    "grouped_linear",
                                    "moe_combine",
                                    "moe_route",
                                    "causal_conv",
                                    "concat",
                                    "count_tokens",
                                    "depthwise_conv",
                                    "scale",
                                    "state_space_scan",
                                    "head_linear",
                                    "latent_attention",
                                    "latent_write",
                                    "select_tokens",
                                    "selective_scan",
                                    "sparse_relu",
                                    "split",
                                    "compress_tokens",
                                    "matrix_wkv",
                                    "merge_attention",
                                    "mix_streams",
                                    "stream_weights",
                                    "take_tokens",
                                    "unfold",
                                    "wkv"};
  std::set<std::string_view> found;
  for (const OpDefinition& op : CpuOps()) found.insert(op.op);
  EXPECT_EQ(found, std::set<std::string_view>(std::begin(names), std::end(names)));
  EXPECT_EQ(found.size(), CpuOps().size()) << "an op occurs twice";
}

TEST(CpuTable, IsSortedByName) {
  EXPECT_TRUE(
      std::is_sorted(CpuOps().begin(), CpuOps().end(),
                     [](const OpDefinition& a, const OpDefinition& b) { return a.op < b.op; }));
}

TEST(CpuTable, KernelsAreComplete) {
  for (const OpDefinition& op : CpuOps()) {
    SCOPED_TRACE(std::string(op.op));
    EXPECT_NE(op.check, nullptr);
    ASSERT_FALSE(op.kernels.empty());
    std::set<std::string_view> names;
    std::set<std::pair<std::string_view, std::string_view>> layouts;  // and what they pack
    for (const Kernel& kernel : op.kernels) {
      EXPECT_EQ(kernel.op, op.op);
      EXPECT_NE(kernel.supports, nullptr);
      EXPECT_NE(kernel.run, nullptr);
      names.insert(kernel.name);
      const std::string_view layout = kernel.packing == nullptr ? "" : kernel.packing->layout;
      EXPECT_TRUE(layouts.emplace(kernel.name, layout).second) << kernel.name << " occurs twice";
      EXPECT_EQ(kernel.priority == 0, kernel.name == "reference") << kernel.name;
      EXPECT_GE(kernel.priority, 0) << kernel.name;
    }
    EXPECT_TRUE(names.contains("reference"));
  }
}

TEST(CpuTable, AliasRulesAreThoseOfTheProgramFormat) {
  std::set<std::string> rules;
  for (const OpDefinition& op : CpuOps()) {
    for (const AliasRule& rule : op.may_alias) {
      rules.insert(std::string(op.op) + " " + std::to_string(rule.input) + ">" +
                   std::to_string(rule.output));
    }
  }
  const std::set<std::string> expected = {"activation 0>0",      "add 0>0",
                                          "all_reduce 0>0",      "add_rms_norm 0>0",
                                          "add_rms_norm 1>1",    "rotary 0>0",
                                          "rotary 1>1",          "gated_activation 0>0",
                                          "rotary_kv_write 0>0", "rotary_kv_write 1>1",
                                          "scale 0>0",           "scatter_rows 0>0",
                                          "take_tokens 0>0",     "draw_tokens 1>0",
                                          "mask_tokens 0>0",     "sparse_relu 0>0",
                                          "apply_adapter 4>0",   "apply_adapter 6>1",
                                          "apply_adapter 8>2",   "apply_adapter 10>3",
                                          "merge_attention 1>0", "all_reduce_add_rms_norm 1>1",
                                          "all_reduce_add_rms_norm 0>2"};
  EXPECT_EQ(rules, expected);
}

}  // namespace
}  // namespace pagemill::ops
