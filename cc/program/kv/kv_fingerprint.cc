#include "cc/program/kv/kv_fingerprint.h"

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>

#include "cc/tensor/dtype.h"

namespace pagemill::program {
namespace {

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

}  // namespace

Digest128 KvFingerprint(const Program& program, std::span<const Digest128> file_digests,
                        const KvLayout& layout) {
  std::string text = "pagemill kv 3\n";
  text += std::endian::native == std::endian::little ? "little" : "big";
  text += " " + std::to_string(layout.page_bytes) + " ";
  text.append(Info(layout.geometry.dtype).name).append(" ");
  text.append(Info(program.activation_type()).name).append("\n");
  for (const KvLayout::Table& table : layout.tables) {
    text += std::to_string(table.group) + " " + std::to_string(table.block_size) + "\n";
  }
  AppendProgram(program, &text);
  for (const Digest128& digest : file_digests) {
    text += std::to_string(digest.high) + " " + std::to_string(digest.low) + "\n";
  }
  return Xxh3_128(text.data(), text.size());
}

}  // namespace pagemill::program
