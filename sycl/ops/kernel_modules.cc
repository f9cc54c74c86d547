#include "sycl/ops/kernel_modules.h"

#include <string>

#include "cc/base/status.h"

namespace pagemill::sycl {
namespace {

// Headers that kernels share, and kernels: a list of files with their text, generated from the
// folders' kernel files (BUILD.bazel).
constexpr KernelFile kFiles[] = {
#include "sycl/ops/kernel_files.inc"
};

std::string Root(std::string_view act, std::string_view kernels) {
  std::string text = "#include \"sycl/ops/kernel.h\"\n";
  if (!act.empty()) text += "using Act = " + std::string(act) + ";\n";
  for (const KernelFile& file : kFiles) {
    if (file.path.ends_with(kernels)) text += "#include \"" + std::string(file.path) + "\"\n";
  }
  return text;
}

// The modules of kernels in files whose names end with `kernels`, one for each type of activations.
class ModulesByAct {
 public:
  ModulesByAct(std::string_view kernels, std::string_view name)
      : kinds_{Kind("f32", "float", kernels, name), Kind("bf16", "Bf16", kernels, name),
               Kind("f16", "F16", kernels, name)} {}
  ModulesByAct(const ModulesByAct&) = delete;

  const KernelModule& Of(DType act) const {
    PAGEMILL_CHECK(act == DType::kF32 || act == DType::kBF16 || act == DType::kF16);
    return kinds_[act == DType::kF32 ? 0 : act == DType::kBF16 ? 1 : 2].module;
  }

 private:
  struct Kind {
    Kind(std::string_view act, std::string_view type, std::string_view kernels,
         std::string_view contents)
        : name(std::string(act) + " " + std::string(contents)), text(Root(type, kernels)) {}
    Kind(const Kind&) = delete;

    const std::string name, text;
    const KernelModule module = {.name = name, .source = text, .files = kFiles};
  };

  const Kind kinds_[3];
};

}  // namespace

const KernelModule& ActModule(DType act) {
  static const ModulesByAct modules("_act_kernel.h", "activations");
  return modules.Of(act);
}

const KernelModule& StateModule(DType act) {
  static const ModulesByAct modules("_state_kernel.h", "states");
  return modules.Of(act);
}

const KernelModule& LatentModule(DType act) {
  static const ModulesByAct modules("_latent_kernel.h", "latents");
  return modules.Of(act);
}

const KernelModule& TokenModule() {
  static const std::string text = Root("", "_token_kernel.h");
  static const KernelModule module = {.name = "tokens", .source = text, .files = kFiles};
  return module;
}

std::vector<const KernelModule*> AllModules() {
  std::vector<const KernelModule*> modules = {&TokenModule()};
  for (const DType act : {DType::kF32, DType::kBF16, DType::kF16}) {
    modules.insert(modules.end(), {&ActModule(act), &StateModule(act), &LatentModule(act)});
  }
  return modules;
}

}  // namespace pagemill::sycl
