#include "cc/program/rewrites/rewrites.h"

#include <array>
#include <utility>

namespace pagemill::program {
namespace {

constexpr std::array<Rewrite, 3> kRewrites = {{
    {"merge_products", MergeProducts},
    {"merge_adapters", MergeAdapters},
    {"fuse_ops", FuseOps},
}};

}  // namespace

std::span<const Rewrite> Rewrites() { return kRewrites; }

StatusOr<Program> RewriteProgram(Program program, std::span<const ops::OpDefinition> ops) {
  for (const Rewrite& rewrite : Rewrites()) {
    PAGEMILL_RETURN_IF_ERROR(rewrite.apply(program, ops).status());
    const Status status = program.CheckIntegrity();
    if (!status.ok()) {
      return Internal("rewrite '" + std::string(rewrite.name) +
                      "' broke the program: " + status.message());
    }
  }
  return program;
}

}  // namespace pagemill::program
