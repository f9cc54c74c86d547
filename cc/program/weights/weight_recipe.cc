#include "cc/program/weights/weight_recipe.h"

#include <cstdint>
#include <initializer_list>

#include "cc/ops/quantized/packed_integers.h"

namespace pagemill::program {
namespace {

template <class Number>
std::string Words(std::initializer_list<Number> numbers) {
  std::string text;
  for (Number number : numbers) text.append(" ").append(std::to_string(number));
  return text;
}

std::string NameOfDigest(const Digest128& digest) { return Words({digest.high, digest.low}); }

// The file and byte range of a stored matrix's columns, from the first byte to the last.
std::string SourceText(const Value& value, std::span<const std::string> file_names) {
  const WeightSource& source = value.weight;
  std::string text = file_names[static_cast<size_t>(source.file)] +
                     Words<int64_t>({source.offset, value.SpanBytes()});
  if (source.column_stride > 0) {
    text += " strides" + Words<int64_t>({source.row_stride, source.column_stride});
  }
  return text;
}

}  // namespace

std::vector<std::string> FileNames(const Program& program, const Weights& weights) {
  std::vector<std::string> names;
  size_t mapped = 0;
  for (const std::string& path : program.files()) {
    if (path == kConstantsPath) {
      const std::span<const std::byte> constants = program.constants();
      names.push_back(" constants" + NameOfDigest(Xxh3_128(constants.data(), constants.size())));
      continue;
    }
    const FileIdentity& file = weights.files()[mapped++].identity();
    names.push_back(Words<int64_t>(
        {static_cast<int64_t>(file.inode), file.bytes, file.modified_ns, file.changed_ns}));
  }
  return names;
}

std::vector<std::string> FileNames(std::span<const Digest128> digests) {
  std::vector<std::string> names;
  for (const Digest128& digest : digests) names.push_back(NameOfDigest(digest));
  return names;
}

std::string WeightRecipe(const Program& program, ValueId weight, WeightParts parts,
                         std::span<const std::string> file_names) {
  const Value& v = program.value(weight);
  if (v.quantized) {
    if (parts == WeightParts::kValues) {
      return WeightRecipe(program, v.quantized->values, parts, file_names);
    }
    const QuantizedFormat& f = v.quantized->format;
    std::string text = " ";
    text.append(ops::kPackedIntegersVersion).append(" ").append(NameOf(f.layout));
    text += Words<int64_t>({f.block_columns, f.first_row, f.first_column, f.row_step});
    for (ValueId part : v.quantized->listed_parts()) {
      text += part == kNoValue ? " -"
                               : " " + std::string(Info(program.value(part).dtype).name) +
                                     WeightRecipe(program, part, parts, file_names);
    }
    return text;
  }
  if (v.stack.empty()) return SourceText(v, file_names);
  std::string text = " stack " + std::to_string(v.stack.size());
  for (ValueId part : v.stack) text += WeightRecipe(program, part, parts, file_names);
  return text;
}

}  // namespace pagemill::program
