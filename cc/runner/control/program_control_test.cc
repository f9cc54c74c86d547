#include "cc/runner/control/program_control.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"
#include "cc/program/testing/batch_builder.h"
#include "cc/program/testing/tiny_llama.h"

namespace pagemill::runner {
namespace {

using engine::KvMemory;
using engine::NewWeights;
using program::ExecutorOptions;
using program::NativeExecutor;
using program::Program;
using program::Target;
using program::testing::BatchBuilder;
using program::testing::TinyLlamaText;

const std::vector<int32_t> kText = {3, 1, 4, 1, 5, 9, 2, 6};
const auto kCommit = [] { return OkStatus(); };

ExecutorOptions SmallOptions() {
  ExecutorOptions options;
  options.num_threads = 1;
  options.max_num_tokens = 16;
  options.max_num_seqs = 2;
  options.max_num_logits_rows = 2;
  options.num_blocks = 9;
  return options;
}

std::unique_ptr<NativeExecutor> MakeExecutor(const std::string& text,
                                             NativeExecutor* host = nullptr,
                                             const std::string& cache = "") {
  ExecutorOptions options = SmallOptions();
  options.pack_cache_folder = cache;
  if (host != nullptr) options.kv_page_bytes = host->memory_plan().kv.page_bytes;
  const Target target = {.ops = ops::CpuOps(), .capabilities = device::DetectCapabilities()};
  auto executor = NativeExecutor::Create(*Program::Parse(text), target, options, host);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  return *std::move(executor);
}

// Logits of the last token of `tokens`, which begin at `position`; slots have pages of their own.
StatusOr<std::vector<float>> LogitsOf(NativeExecutor& executor, const std::vector<int32_t>& tokens,
                                      int32_t position = 0, int32_t slot = 0) {
  BatchBuilder batch(executor.memory_plan().kv.TableBlockSizes(), 2);
  batch.Add(slot, position, tokens);
  program::ExecutorOutput output;
  PAGEMILL_RETURN_IF_ERROR(executor.Execute(batch.view(), &output));
  const float* row = output.logits().Row<const float>(0);
  return std::vector<float>(row, row + output.logits().shape[1]);
}

std::vector<float> MustRun(NativeExecutor& executor, const std::vector<int32_t>& tokens = kText,
                           int32_t position = 0) {
  auto logits = LogitsOf(executor, tokens, position);
  EXPECT_TRUE(logits.ok()) << logits.status().ToString();
  return logits.ok() ? *std::move(logits) : std::vector<float>();
}

TEST(ProgramControlTest, StepsAreRefusedDuringSleepAndEqualAfterIt) {
  const auto executor = MakeExecutor(TinyLlamaText({}));
  ProgramControl control({{"model", executor.get()}});
  const std::vector<float> prompt = MustRun(*executor), next = MustRun(*executor, {7}, 8);
  ASSERT_TRUE(control.Sleep(KvMemory::kKeep).ok());
  EXPECT_TRUE(executor->packed_weights().empty());
  EXPECT_EQ(LogitsOf(*executor, kText).status().code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(control.Wake().ok());
  EXPECT_EQ(MustRun(*executor, {7}, 8), next) << "from KV that was kept";
  ASSERT_TRUE(control.Sleep(KvMemory::kFree).ok());
  ASSERT_TRUE(control.Wake().ok());
  EXPECT_NE(MustRun(*executor, {7}, 8), next) << "its KV is gone";
  EXPECT_EQ(MustRun(*executor), prompt);
  EXPECT_EQ(MustRun(*executor, {7}, 8), next);
}

TEST(ProgramControlTest, AnUpdateGivesTheOutputsOfTheOtherWeights) {
  const std::string one = TinyLlamaText({.seed = 1}), two = TinyLlamaText({.seed = 2});
  const std::vector<float> of_one = MustRun(*MakeExecutor(one)),
                           of_two = MustRun(*MakeExecutor(two));
  ASSERT_NE(of_one, of_two);
  const auto executor = MakeExecutor(one);
  ProgramControl control({{"model", executor.get()}});
  const Digest128 before = executor->kv_fingerprint();
  ASSERT_TRUE(control.UpdateWeights({{"model", two}}, NewWeights::kBeside, kCommit).ok());
  EXPECT_EQ(MustRun(*executor), of_two);
  EXPECT_FALSE(executor->kv_fingerprint() == before);
  EXPECT_TRUE(executor->kv_fingerprint() == MakeExecutor(two)->kv_fingerprint());
  ASSERT_TRUE(control.UpdateWeights({{"model", one}}, NewWeights::kBeside, kCommit).ok());
  EXPECT_EQ(MustRun(*executor), of_one);
  EXPECT_TRUE(executor->kv_fingerprint() == before);
}

TEST(ProgramControlTest, WeightsThatAreUpdatedDuringSleepComeWithWake) {
  const std::string two = TinyLlamaText({.seed = 2});
  const auto executor = MakeExecutor(TinyLlamaText({.seed = 1}));
  ProgramControl control({{"model", executor.get()}});
  ASSERT_TRUE(control.Sleep(KvMemory::kFree).ok());
  ASSERT_TRUE(control.UpdateWeights({{"model", two}}, NewWeights::kBeside, kCommit).ok());
  EXPECT_TRUE(executor->packed_weights().empty()) << "it still sleeps";
  ASSERT_TRUE(control.Wake().ok());
  EXPECT_EQ(MustRun(*executor), MustRun(*MakeExecutor(two)));
}

TEST(ProgramControlTest, WhatIsRefusedChangesNothing) {
  const auto executor = MakeExecutor(TinyLlamaText({}));
  ProgramControl control({{"model", executor.get()}});
  const std::vector<float> before = MustRun(*executor);
  const auto expect_refusal = [&](const engine::WeightSources& sources, const Status& commit,
                                  const std::string& words) {
    for (const NewWeights where : {NewWeights::kBeside, NewWeights::kOver}) {
      const Status status = control.UpdateWeights(sources, where, [&] { return commit; });
      EXPECT_NE(status.message().find(words), std::string::npos) << status.ToString();
      EXPECT_EQ(MustRun(*executor), before);
    }
  };
  const std::string other = TinyLlamaText({.seed = 2});
  expect_refusal({{"encoder", other}}, OkStatus(), "'encoder'");
  expect_refusal({{"model", "no program"}}, OkStatus(), "line 1");
  expect_refusal({{"model", TinyLlamaText({.vocab = 85})}}, OkStatus(), "f32[85,64]");
  expect_refusal({{"model", TinyLlamaText({.layers = 3})}}, OkStatus(), "is not of the loaded");
  expect_refusal({{"model", other}}, Unavailable("not now"), "not now");
}

// The guest is the same program, so all that it packs is the host's.
TEST(ProgramControlTest, ProgramsThatShareCopiesKeepTheirOwnWeights) {
  const std::string one = TinyLlamaText({.seed = 1}), two = TinyLlamaText({.seed = 2});
  const std::vector<float> of_one = MustRun(*MakeExecutor(one)),
                           of_two = MustRun(*MakeExecutor(two));
  const auto host = MakeExecutor(one);
  const auto guest = MakeExecutor(one, host.get());
  EXPECT_EQ(guest->packed_weights().shares(), !guest->packed_weights().empty());
  ProgramControl control({{"model", host.get()}, {"draft", guest.get()}});
  const auto expect = [&](const std::vector<float>& of_host, const std::vector<float>& of_guest) {
    EXPECT_EQ(MustRun(*host), of_host);
    EXPECT_EQ(MustRun(*guest), of_guest);
  };
  expect(of_one, of_one);
  ASSERT_TRUE(control.UpdateWeights({{"model", two}}, NewWeights::kBeside, kCommit).ok());
  EXPECT_FALSE(guest->packed_weights().shares());
  expect(of_two, of_one);
  ASSERT_TRUE(control.Sleep(KvMemory::kKeep).ok());
  ASSERT_TRUE(control.Wake().ok());
  expect(of_two, of_one);
  ASSERT_TRUE(control.UpdateWeights({{"draft", two}}, NewWeights::kBeside, kCommit).ok());
  EXPECT_EQ(guest->packed_weights().shares(), !guest->packed_weights().empty());
  expect(of_two, of_two);
  ASSERT_TRUE(
      control.UpdateWeights({{"model", one}, {"draft", one}}, NewWeights::kBeside, kCommit).ok());
  expect(of_one, of_one);
}

TEST(ProgramControlTest, WhatIsWrittenOverAHostsWeightsIsNoGuests) {
  const std::string one = TinyLlamaText({.seed = 1}), two = TinyLlamaText({.seed = 2});
  const std::vector<float> of_one = MustRun(*MakeExecutor(one)),
                           of_two = MustRun(*MakeExecutor(two));
  const auto host = MakeExecutor(one);
  const auto guest = MakeExecutor(one, host.get());
  ProgramControl control({{"model", host.get()}, {"draft", guest.get()}});
  ASSERT_TRUE(control.UpdateWeights({{"model", two}}, NewWeights::kOver, kCommit).ok());
  EXPECT_FALSE(guest->packed_weights().shares());
  EXPECT_EQ(MustRun(*host), of_two);
  EXPECT_EQ(MustRun(*guest), of_one);
  ASSERT_TRUE(
      control.UpdateWeights({{"draft", two}, {"model", one}}, NewWeights::kOver, kCommit).ok());
  EXPECT_EQ(MustRun(*host), of_one);
  EXPECT_EQ(MustRun(*guest), of_two);
}

// Weights in a file instead of constants, as checkpoints have them.
class FilesTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* temporary = std::getenv("TEST_TMPDIR");
    folder_ = std::filesystem::path(temporary == nullptr ? "/tmp" : temporary) / "control";
    std::filesystem::create_directories(folder_);
  }
  // The program with its constants in a file of this name.
  std::string InFile(const std::string& name, const std::string& text) const {
    const std::string path = folder_ / name;
    const auto program = *Program::Parse(text);
    const auto& bytes = program.constants();
    std::ofstream(path + ".new", std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    std::filesystem::rename(path + ".new", path);
    std::string moved = text.substr(0, text.find("constants "));
    const size_t at = moved.find("file 0 @");
    EXPECT_NE(at, std::string::npos);
    return moved.replace(at, 8, "file 0 " + path);
  }

  std::filesystem::path folder_;
};

TEST_F(FilesTest, WakeBringsBackTheSameBytesAndUpdateTakesThoseOfThePath) {
  const std::string one = TinyLlamaText({.seed = 1}), two = TinyLlamaText({.seed = 2});
  const std::vector<float> of_one = MustRun(*MakeExecutor(one)),
                           of_two = MustRun(*MakeExecutor(two));
  const std::string cache = folder_ / "cache";
  const auto executor = MakeExecutor(InFile("model", one), nullptr, cache);
  ProgramControl control({{"model", executor.get()}});
  ASSERT_TRUE(control.Sleep(KvMemory::kKeep).ok());
  const std::string text = InFile("model", two);  // another file at the same path
  ASSERT_TRUE(control.Wake().ok());
  EXPECT_EQ(MustRun(*executor), of_one);
  ASSERT_TRUE(control.UpdateWeights({{"model", text}}, NewWeights::kBeside, kCommit).ok());
  EXPECT_EQ(MustRun(*executor), of_two);
  ASSERT_TRUE(control.Sleep(KvMemory::kFree).ok());
  std::filesystem::remove_all(cache);
  std::filesystem::remove(folder_ / "model");
  ASSERT_TRUE(control.Wake().ok()) << "packed again from the file that is still mapped";
  EXPECT_EQ(MustRun(*executor), of_two);
}

// `text` with every second weight in the file of `other`.
std::string Mixed(const std::string& text, const std::string& other) {
  const size_t path = other.find("file 0 ") + 7;
  const std::string file = "file 1 " + other.substr(path, other.find('\n', path) - path) + "\n";
  std::string mixed, line;
  int count = 0;
  for (std::istringstream lines(text); std::getline(lines, line);) {
    if (line.starts_with("weight ") && ++count % 2 == 0) {
      std::string word, name, dtype, shape;
      std::istringstream words(line);
      words >> word >> name >> dtype >> shape >> word;
      std::getline(words, line);
      line = "weight " + name + " " + dtype + " " + shape + " 1" + line;
    }
    mixed += line + "\n" + (line.starts_with("file 0 ") ? file : "");
  }
  return mixed;
}

TEST_F(FilesTest, APartIsWrittenOverTheOldWeightsAndTheRestStays) {
  const std::string one = InFile("one", TinyLlamaText({.seed = 1}));
  const std::string two = InFile("two", TinyLlamaText({.seed = 2}));
  const std::string mixed = Mixed(one, two);
  const std::vector<float> of_one = MustRun(*MakeExecutor(one)),
                           of_two = MustRun(*MakeExecutor(two)),
                           of_both = MustRun(*MakeExecutor(mixed));
  ASSERT_NE(of_one, of_both);
  ASSERT_NE(of_two, of_both);
  const auto executor = MakeExecutor(one);
  ProgramControl control({{"model", executor.get()}});
  std::filesystem::remove(folder_ / "one");  // it is mapped, and not opened again
  ASSERT_TRUE(control.UpdateWeights({{"model", mixed}}, NewWeights::kOver, kCommit).ok());
  std::filesystem::remove(folder_ / "two");
  EXPECT_EQ(MustRun(*executor), of_both);
  ASSERT_TRUE(control.Sleep(KvMemory::kFree).ok());
  ASSERT_TRUE(control.Wake().ok());
  EXPECT_EQ(MustRun(*executor), of_both);
  ASSERT_TRUE(control.UpdateWeights({{"model", one}}, NewWeights::kOver, kCommit).ok());
  EXPECT_EQ(MustRun(*executor), of_one);
  EXPECT_EQ(control.UpdateWeights({{"model", two}}, NewWeights::kOver, kCommit).code(),
            StatusCode::kNotFound)
      << "no weight of it is in use any more";
  InFile("two", TinyLlamaText({.seed = 2}));
  ASSERT_TRUE(control.Sleep(KvMemory::kFree).ok());
  ASSERT_TRUE(control.UpdateWeights({{"model", mixed}}, NewWeights::kOver, kCommit).ok());
  ASSERT_TRUE(control.Wake().ok());
  EXPECT_EQ(MustRun(*executor), of_both);
}

TEST_F(FilesTest, AFileThatIsCutOrMissingChangesNothing) {
  const std::string one = TinyLlamaText({.seed = 1});
  const auto executor = MakeExecutor(one);
  ProgramControl control({{"model", executor.get()}});
  const std::vector<float> before = MustRun(*executor);
  const std::string text = InFile("other", TinyLlamaText({.seed = 2}));
  std::filesystem::resize_file(folder_ / "other", 1000);
  const Status cut = control.UpdateWeights({{"model", text}}, NewWeights::kBeside, kCommit);
  EXPECT_EQ(cut.code(), StatusCode::kDataLoss) << cut.ToString();
  EXPECT_NE(cut.message().find("weight '"), std::string::npos) << cut.message();
  std::filesystem::remove(folder_ / "other");
  EXPECT_EQ(control.UpdateWeights({{"model", text}}, NewWeights::kBeside, kCommit).code(),
            StatusCode::kNotFound);
  EXPECT_EQ(MustRun(*executor), before);
}

}  // namespace
}  // namespace pagemill::runner
