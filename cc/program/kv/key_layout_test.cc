#include "cc/program/kv/key_layout.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/kv_write/key_layout.h"
#include "cc/ops/op.h"
#include "cc/program/testing/tiny_llama.h"

namespace pagemill::program {
namespace {

// The CPU's ops, and one more kernel of attention, which takes keys in rows and no windows.
class OpTable {
 public:
  explicit OpTable(int32_t priority) {
    for (const ops::OpDefinition& op : ops::CpuOps()) {
      ops::OpDefinition& added = ops_.emplace_back(op);
      if (op.op != "paged_attention") continue;
      kernels_.assign(op.kernels.begin(), op.kernels.end());
      kernels_.push_back({.op = op.op,
                          .name = "rows",
                          .priority = priority,
                          .supports =
                              [](const device::Capabilities&, const ops::OpCall& call) {
                                return ops::KeysInRows(call) &&
                                       call.attributes->GetInt("window", 0) == 0;
                              },
                          .run = [](const ops::OpCall&, ops::KernelContext&) {}});
      added.kernels = kernels_;
    }
  }
  OpTable(const OpTable&) = delete;
  Target target() const { return {.ops = ops_}; }

 private:
  std::vector<ops::Kernel> kernels_;
  std::vector<ops::OpDefinition> ops_;
};

Program Laid(const Target& target, const std::string& filter, int32_t window = 0) {
  ExecutorOptions options;
  options.kernel_filter = filter;
  Program program = *Program::Parse(testing::TinyLlamaText({.window = window}));
  const Status status = ChooseKeyLayout(target, options, &program);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return program;
}

const Program& Unchanged(int32_t window = 0) {
  static const Program plain = *Program::Parse(testing::TinyLlamaText({}));
  static const Program windows = *Program::Parse(testing::TinyLlamaText({.window = 8}));
  return window == 0 ? plain : windows;
}

TEST(KeyLayout, KeysStayInColumnsOnACpu) {
  const Target cpu = {.ops = ops::CpuOps(), .capabilities = device::DetectCapabilities()};
  EXPECT_EQ(Laid(cpu, ""), Unchanged());
  EXPECT_EQ(Laid(cpu, "reference"), Unchanged());
}

TEST(KeyLayout, KeysLieInRowsForABetterKernel) {
  const OpTable table(100);
  const Program program = Laid(table.target(), "");
  int num_ops = 0;
  for (const Op& op : program.ops()) {
    const bool has_keys = op.name == "kv_write" || op.name == "paged_attention";
    EXPECT_EQ(op.attributes.GetInt(ops::kKeysInRows, 0), has_keys ? 1 : 0) << op.name;
    num_ops += has_keys ? 1 : 0;
  }
  EXPECT_EQ(num_ops, 4);  // two layers
  const StatusOr<KernelSelection> selection = SelectKernels(program, table.target(), {});
  ASSERT_TRUE(selection.ok()) << selection.status().ToString();
  for (const ops::Kernel* kernel : selection->kernels) {
    EXPECT_EQ(kernel->name == "rows", kernel->op == "paged_attention") << kernel->op;
  }
}

TEST(KeyLayout, AWorseKernelHasToBeNamed) {
  const OpTable table(1);
  EXPECT_EQ(Laid(table.target(), ""), Unchanged());
  EXPECT_EQ(Laid(table.target(), "portable"), Unchanged());
  EXPECT_NE(Laid(table.target(), "rows"), Unchanged());
}

TEST(KeyLayout, EveryAttentionMustGainByIt) {
  const OpTable table(100);
  EXPECT_EQ(Laid(table.target(), "", /*window=*/8), Unchanged(8));
  EXPECT_EQ(Laid(table.target(), "rows", /*window=*/8), Unchanged(8));
}

TEST(KeyLayout, OtherWeightsOfAProgramGetItsLayout) {
  const OpTable table(100);
  const Program chosen = Laid(table.target(), "");
  Program other = Unchanged();
  CopyKeyLayout(chosen, &other);
  EXPECT_EQ(other, chosen);
}

}  // namespace
}  // namespace pagemill::program
