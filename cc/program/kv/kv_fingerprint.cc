#include "cc/program/kv/kv_fingerprint.h"

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>

#include "cc/tensor/dtype.h"

namespace pagemill::program {
namespace {

constexpr int64_t kSampleBytes = 4096;

// The program without the paths of its files.
void AppendProgram(const Program& program, std::string* text) {
  const std::string whole = program.ToText();
  for (size_t begin = 0; begin < whole.size();) {
    const size_t end = std::min(whole.find('\n', begin), whole.size());
    const std::string_view line = std::string_view(whole).substr(begin, end - begin);
    if (!line.starts_with("file ")) text->append(line).append("\n");
    begin = end + 1;
  }
}

void AppendSamples(const std::byte* data, int64_t bytes, std::string* text) {
  const int64_t size = std::min(bytes, kSampleBytes);
  for (int64_t offset : {int64_t{0}, (bytes - size) / 2, bytes - size}) {
    const Digest128 digest = Xxh3_128(data + offset, static_cast<size_t>(size));
    text->append(std::to_string(digest.high) + " " + std::to_string(digest.low) + "\n");
  }
}

}  // namespace

Digest128 KvFingerprint(const Program& program, const Weights& weights,
                        const CacheGeometry& geometry) {
  std::string text = "pagemill kv 1\n";
  text += std::endian::native == std::endian::little ? "little" : "big";
  text += " " + std::to_string(geometry.block_size) + " ";
  text.append(Info(geometry.dtype).name).append("\n");
  AppendProgram(program, &text);
  for (size_t i = 0; i < program.values().size(); ++i) {
    const Value& value = program.values()[i];
    if (value.kind != ValueKind::kWeight || value.assembly) continue;  // the parts say all
    AppendSamples(weights.data(ValueId(static_cast<int32_t>(i))), value.Bytes({}), &text);
  }
  return Xxh3_128(text.data(), text.size());
}

}  // namespace pagemill::program
