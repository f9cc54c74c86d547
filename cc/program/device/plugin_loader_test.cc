// A shared object that is a plugin, several that are none, and what the loader says of each.
#include "cc/program/device/plugin_loader.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace pagemill::program {
namespace {

constexpr char kPlugin[] = "cc/program/device/testing/librefusing_plugin.so";

Status Load(const std::string& path, const std::string& version = "1.test") {
  return LoadPlugin(path, version).status();
}

TEST(LoadPlugin, MakesATableOfTheEnginesOps) {
  const auto loaded = LoadPlugin(kPlugin, "1.test");
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ((*loaded)->plugin().vendor(), "test");
  ASSERT_EQ((*loaded)->ops().size(), 1u);
  const ops::OpDefinition& add = (*loaded)->ops()[0];
  EXPECT_EQ(add.op, "add");
  EXPECT_EQ(add.kernels[0].name, "test");
  EXPECT_EQ(add.check, (*ops::FindOp(ops::CpuOps(), "add"))->check);
}

TEST(LoadPlugin, PassesOnWhyThereIsNoDevice) {
  const auto loaded = LoadPlugin(kPlugin, "1.test");
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ((*loaded)->plugin().Find().status().message(), "there is no driver");
}

TEST(LoadPlugin, RefusesAnotherVersionInThePluginsWords) {
  const Status status = Load(kPlugin, "2");
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find(kPlugin), std::string::npos);
  EXPECT_NE(status.message().find("it is of version 1.test and this engine of version 2; install "
                                  "the two of one version"),
            std::string::npos)
      << status.message();
}

TEST(LoadPlugin, NamesAFileThatDoesNotExist) {
  const Status status = Load("no/such.so");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("no/such.so"), std::string::npos);
}

TEST(LoadPlugin, RefusesWhatIsNoSharedObject) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/text.so";
  std::ofstream(path) << "text";
  EXPECT_EQ(Load(path).code(), StatusCode::kFailedPrecondition);
}

TEST(LoadPlugin, RefusesASharedObjectWithoutTheEntry) {
  const Status status = Load("cc/program/device/testing/libno_plugin.so");
  EXPECT_NE(status.message().find(kDevicePluginEntry), std::string::npos) << status.message();
}

// Last: the plugin keeps its kernels.
TEST(LoadPlugin, RefusesKernelsOfAnOpThatTheEngineDoesNotHave) {
  EXPECT_NE(Load(kPlugin, "1.unknown").message().find("no_such_op"), std::string::npos);
}

}  // namespace
}  // namespace pagemill::program
