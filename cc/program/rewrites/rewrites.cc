#include "cc/program/rewrites/rewrites.h"

#include <array>
#include <utility>

namespace pagemill::program {
namespace {

constexpr std::array<Rewrite, 3> kRewrites = {{
    {"fuse_add_rms_norm", FuseAddRmsNorm},
    {"fuse_linears", FuseLinears},
    {"fuse_rotary_kv_write", FuseRotaryKvWrite},
}};

}  // namespace

std::span<const Rewrite> Rewrites() { return kRewrites; }

StatusOr<Program> RewriteProgram(Program program) {
  for (const Rewrite& rewrite : Rewrites()) {
    rewrite.apply(program);
    const Status status = program.CheckIntegrity();
    if (!status.ok()) {
      return Internal("rewrite '" + std::string(rewrite.name) +
                      "' broke the program: " + status.message());
    }
  }
  return program;
}

}  // namespace pagemill::program
