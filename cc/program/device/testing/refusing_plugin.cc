// A plugin without devices, for tests of the loader. It is for the engine "1.test"; for "1.unknown"
// it has kernels of an op that does not exist.
#include <span>
#include <string>
#include <string_view>

#include "cc/program/device/device_plugin.h"

namespace pagemill::program::testing {
namespace {

constexpr ops::Kernel kAdd[] = {{.op = "add", .name = "test"}};
constexpr ops::OpKernels kRows[] = {{"add", kAdd}};
constexpr ops::OpKernels kUnknownRows[] = {{"add", kAdd}, {"no_such_op", kAdd}};

class Plugin final : public DevicePlugin {
 public:
  std::span<const ops::OpKernels> rows = kRows;

  std::string_view vendor() const override { return "test"; }
  std::span<const ops::OpKernels> kernels() const override { return rows; }
  StatusOr<std::vector<FoundDevice>> Find() override {
    return FailedPrecondition("there is no driver");
  }
  StatusOr<OpenedDevice> Open(int32_t) override {
    return FailedPrecondition("there is no driver");
  }
};

const char* Enter(std::string_view engine_version, DevicePlugin** plugin) {
  const bool is_unknown = engine_version == "1.unknown";
  const char* const refusal = EnterDevicePlugin<Plugin>(is_unknown ? engine_version : "1.test",
                                                        engine_version, plugin);
  if (is_unknown) static_cast<Plugin*>(*plugin)->rows = kUnknownRows;
  return refusal;
}

}  // namespace
}  // namespace pagemill::program::testing

extern "C" const char* pagemill_device_plugin(const char* engine_version,
                                              pagemill::program::DevicePlugin** plugin) {
  return pagemill::program::testing::Enter(engine_version, plugin);
}
