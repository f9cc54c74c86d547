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

// docs/gpu.md has a line for each op of the CPU: the names of its kernels, each once, or a dash.
TEST(OpsTable, IsInTheDocument) {
  const std::string document = Document();
  for (const ops::OpDefinition& cpu : ops::CpuOps()) {
    std::string names;
    const auto row = std::ranges::find(GpuKernels(), cpu.op, &ops::OpKernels::op);
    if (row != GpuKernels().end()) {
      for (const ops::Kernel& kernel : row->kernels) {
        const std::string name = "`" + std::string(kernel.name) + "`";
        if (names.find(name) == std::string::npos) names += (names.empty() ? "" : ", ") + name;
      }
    }
    const std::string line =
        "| `" + std::string(cpu.op) + "` | " + (names.empty() ? "-" : names) + " |";
    EXPECT_NE(document.find(line), std::string::npos) << "not in docs/gpu.md: " << line;
  }
}

TEST(OpsTable, IsSortedAndNamesItsOps) {
  EXPECT_TRUE(std::ranges::is_sorted(GpuKernels(), {}, &ops::OpKernels::op));
  for (const ops::OpKernels& row : GpuKernels()) {
    for (const ops::Kernel& kernel : row.kernels) EXPECT_EQ(kernel.op, row.op);
  }
}

}  // namespace
}  // namespace pagemill::gpu
