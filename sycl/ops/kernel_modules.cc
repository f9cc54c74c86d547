#include "sycl/ops/kernel_modules.h"

#include <algorithm>
#include <string>

#include "cc/base/status.h"

namespace pagemill::sycl {
namespace {

// Headers that kernels share, then kernels on activations, then those of tokens: lists of files
// with their text, generated from the folders' kernel files (BUILD.bazel).
constexpr KernelFile kFiles[] = {
#include "sycl/ops/kernel_files.inc"
};

constexpr std::string_view kActKernels = "_act_kernel.h";
constexpr std::string_view kTokenKernels = "_token_kernel.h";

std::string Root(std::string_view act, std::string_view kernels) {
  std::string text = "#include \"sycl/ops/kernel.h\"\n";
  if (!act.empty()) text += "using Act = " + std::string(act) + ";\n";
  for (const KernelFile& file : kFiles) {
    if (file.path.ends_with(kernels)) text += "#include \"" + std::string(file.path) + "\"\n";
  }
  return text;
}

}  // namespace

const KernelModule& ActModule(DType act) {
  static const std::string f32 = Root("float", kActKernels);
  static const std::string bf16 = Root("Bf16", kActKernels);
  static const std::string f16 = Root("F16", kActKernels);
  static const KernelModule modules[] = {
      {.name = "f32 activations", .source = f32, .files = kFiles},
      {.name = "bf16 activations", .source = bf16, .files = kFiles},
      {.name = "f16 activations", .source = f16, .files = kFiles}};
  PAGEMILL_CHECK(act == DType::kF32 || act == DType::kBF16 || act == DType::kF16);
  return modules[act == DType::kF32 ? 0 : act == DType::kBF16 ? 1 : 2];
}

const KernelModule& TokenModule() {
  static const std::string text = Root("", kTokenKernels);
  static const KernelModule module = {.name = "tokens", .source = text, .files = kFiles};
  return module;
}

}  // namespace pagemill::sycl
