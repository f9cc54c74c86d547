#include "cuda/ops_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace pagemill::gpu {
namespace {

std::string Document() {
  std::ifstream file("docs/gpu.md");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// docs/gpu.md has a line for each op of the CPU: the names of its kernels, or a dash.
TEST(OpsTable, IsInTheDocument) {
  const std::string document = Document();
  for (const ops::OpDefinition& cpu : ops::CpuOps()) {
    std::string names;
    const auto found = ops::FindOp(GpuOps(), cpu.op);
    if (found.ok()) {
      for (const ops::Kernel& kernel : (*found)->kernels) {
        names += (names.empty() ? "`" : ", `") + std::string(kernel.name) + "`";
      }
    }
    const std::string line =
        "| `" + std::string(cpu.op) + "` | " + (names.empty() ? "-" : names) + " |";
    EXPECT_NE(document.find(line), std::string::npos) << "not in docs/gpu.md: " << line;
  }
}

TEST(OpsTable, IsSortedAndNamesItsOps) {
  EXPECT_TRUE(std::ranges::is_sorted(GpuOps(), {}, &ops::OpDefinition::op));
  for (const ops::OpDefinition& op : GpuOps()) {
    for (const ops::Kernel& kernel : op.kernels) EXPECT_EQ(kernel.op, op.op);
  }
}

}  // namespace
}  // namespace pagemill::gpu
