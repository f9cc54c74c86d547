#include "cc/device/testing/emulated_cpu.h"

#include <cstdlib>

namespace pagemill::device {

bool IsEmulatedCpu() {
  static const bool is_emulated = std::getenv("PAGEMILL_TEST_EMULATED_CPU") != nullptr;
  return is_emulated;
}

}  // namespace pagemill::device
