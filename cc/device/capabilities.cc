#include "cc/device/capabilities.h"

#include <utility>

#include "cc/device/core_count.h"
#include "cc/device/isa.h"

namespace pagemill::device {

std::string CpuCapabilities::ToString() const {
  const std::pair<bool, const char*> names[] = {
      {avx2, "avx2"},
      {avx_vnni, "avx_vnni"},
      {avx512, "avx512"},
      {avx512_vnni, "avx512_vnni"},
      {avx512_bf16, "avx512_bf16"},
      {avx512_vbmi, "avx512_vbmi"},
      {amx_bf16, "amx_bf16"},
      {amx_int8, "amx_int8"},
      {asimd_dotprod, "asimd_dotprod"},
      {asimd_bf16, "asimd_bf16"},
      {asimd_i8mm, "asimd_i8mm"},
      {vxe, "vxe"},
  };
  std::string text;
  for (const auto& [present, name] : names) {
    if (!present) continue;
    if (!text.empty()) text += ' ';
    text += name;
  }
  return text.empty() ? "baseline" : text;
}

Capabilities DetectCapabilities() {
  Capabilities caps;
  DetectIsa(caps.cpu);
  CoreCountSources sources;
  sources.allowed_cpus = AllowedCpus();
  caps.cpu.cores = CountCores(sources);
  return caps;
}

}  // namespace pagemill::device
