// The text of kernels is complete, without a SYCL runtime to compile it.
#include "sycl/ops/kernel_modules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>

namespace pagemill::sycl {
namespace {

void ExpectIncludesKnown(const std::string& text, const KernelModule& module) {
  static const std::regex include("#include \"([^\"]*)\"");
  for (auto it = std::sregex_iterator(text.begin(), text.end(), include);
       it != std::sregex_iterator(); ++it) {
    const std::string path = (*it)[1];
    EXPECT_NE(std::ranges::find(module.files, path, &KernelFile::path), module.files.end())
        << path << " is not in kernel_files of sycl/ops/BUILD.bazel";
  }
}

TEST(KernelModules, HaveAllFilesThatTheyInclude) {
  for (const KernelModule* module : AllModules()) {
    ExpectIncludesKnown(std::string(module->source), *module);
    for (const KernelFile& file : module->files) {
      ExpectIncludesKnown(std::string(file.text), *module);
    }
  }
}

TEST(KernelModules, HaveTheKernelsOfTheirKind) {
  const std::string act(ActModule(DType::kF16).source), token(TokenModule().source);
  EXPECT_NE(act.find("using Act = F16;"), std::string::npos);
  EXPECT_NE(act.find("/add_act_kernel.h"), std::string::npos);
  EXPECT_EQ(act.find("argmax"), std::string::npos);
  EXPECT_NE(token.find("/argmax_token_kernel.h"), std::string::npos);
  EXPECT_EQ(token.find("Act"), std::string::npos);
  const std::string state(StateModule(DType::kF32).source);
  const std::string latent(LatentModule(DType::kF32).source);
  EXPECT_NE(state.find("/wkv_state_kernel.h"), std::string::npos);
  EXPECT_NE(latent.find("/latent_write_latent_kernel.h"), std::string::npos);
  EXPECT_EQ((act + token + latent).find("wkv"), std::string::npos);
  EXPECT_NE(&ActModule(DType::kF32), &ActModule(DType::kF16));
}

}  // namespace
}  // namespace pagemill::sycl
