#include "cc/program/weights/weights.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <set>
#include <string>

namespace pagemill::program {
namespace {

// The size of the unit that a byte swap reverses: kernels read block formats byte by byte, so 1.
int32_t ElementBytes(DType dtype) { return IsBlockFormat(dtype) ? 1 : Info(dtype).block_bytes; }

bool InFile(const Value& v) { return v.kind == ValueKind::kWeight && !v.IsMade(); }

// Scales that kernels read besides packed values.
std::set<ValueId> KeptScales(const Program& program) {
  std::set<ValueId> scales;
  for (const Value& v : program.values()) {
    if (!v.quantized || v.quantized->format.layout != QuantizedLayout::kScaled) continue;
    scales.insert(v.quantized->scales);
  }
  return scales;
}

bool NeedsCopy(const Program& program, const Value& weight, bool is_small) {
  const int32_t element = ElementBytes(weight.dtype);
  if (weight.shape.rank == 1 || is_small) return true;
  return program.files()[static_cast<size_t>(weight.weight.file)] == kConstantsPath ||
         weight.weight.offset % element != 0 ||
         (element > 1 && std::endian::native == std::endian::big);
}

// Owned memory aligned to a cache line.
std::byte* AlignedCopy(std::span<const std::byte> source, int32_t element_bytes,
                       std::vector<std::unique_ptr<std::byte[]>>* copies) {
  constexpr size_t kAlignment = 64;
  void* data =
      copies->emplace_back(std::make_unique<std::byte[]>(source.size() + kAlignment)).get();
  size_t space = source.size() + kAlignment;
  data = std::align(kAlignment, source.size(), data, space);
  std::span<std::byte> target(static_cast<std::byte*>(data), source.size());
  CopyElements(source, element_bytes, target);
  return target.data();
}

}  // namespace

ByteRange StoredRange(const Program& program, ValueId weight) {
  const Value& v = program.value(weight);
  if (v.IsMade()) return {-1, weight.value(), v.Bytes({}), 0, 0};
  return {v.weight.file, v.weight.offset, v.Bytes({}), v.weight.row_stride,
          v.weight.column_stride};
}

WeightBytes CountWeightBytes(const Program& program) {
  WeightBytes bytes;
  std::set<ByteRange> seen;
  const std::set<ValueId> scales = KeptScales(program);
  for (size_t i = 0; i < program.values().size(); ++i) {
    const Value& v = program.values()[i];
    if (!InFile(v)) continue;
    const ValueId id(static_cast<int32_t>(i));
    const int64_t size = v.Bytes({});
    if (!seen.insert(StoredRange(program, id)).second) continue;
    bytes.total_bytes += size;
    if (NeedsCopy(program, v, scales.contains(id))) bytes.copied_bytes += v.SpanBytes();
  }
  return bytes;
}

void CopyElements(std::span<const std::byte> source, int32_t element_bytes,
                  std::span<std::byte> target) {
  if (std::endian::native == std::endian::little || element_bytes == 1) {
    std::memcpy(target.data(), source.data(), source.size());
    return;
  }
  const size_t step = static_cast<size_t>(element_bytes);
  for (size_t i = 0; i < source.size(); i += step) {
    for (size_t b = 0; b < step; ++b) target[i + b] = source[i + step - 1 - b];
  }
}

StatusOr<Weights::Files> Weights::Open(const Program& program, std::span<const MappedFile> mapped) {
  std::vector<MappedFile> files;
  std::vector<int64_t> sizes;  // of the program's files, with the constants
  for (const std::string& path : program.files()) {
    if (path == kConstantsPath) {
      sizes.push_back(static_cast<int64_t>(program.constants().size()));
      continue;
    }
    const auto found = std::ranges::find(mapped, path, &MappedFile::path);
    if (found != mapped.end()) {
      files.push_back(*found);
    } else {
      PAGEMILL_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
      files.push_back(std::move(file));
    }
    sizes.push_back(static_cast<int64_t>(files.back().bytes().size()));
  }
  for (const Value& v : program.values()) {
    if (!InFile(v)) continue;
    const int64_t size = v.SpanBytes();
    const int64_t file_size = sizes[static_cast<size_t>(v.weight.file)];
    if (v.weight.offset <= file_size && size <= file_size - v.weight.offset) continue;
    const std::string& path = program.files()[static_cast<size_t>(v.weight.file)];
    return DataLoss("weight '" + v.name + "' takes bytes " + std::to_string(v.weight.offset) +
                    " to " + std::to_string(v.weight.offset + size) + " of '" + path +
                    "', which has " + std::to_string(file_size) +
                    ": the file is incomplete; download it again");
  }
  return std::make_shared<const std::vector<MappedFile>>(std::move(files));
}

StatusOr<Weights> Weights::Load(const Program& program) {
  PAGEMILL_ASSIGN_OR_RETURN(Files files, Open(program));
  return Load(program, std::move(files));
}

Weights Weights::Load(const Program& program, Files files) {
  Weights weights;
  std::vector<std::span<const std::byte>> bytes;
  size_t mapped = 0;
  for (const std::string& path : program.files()) {
    bytes.push_back(path == kConstantsPath ? std::span<const std::byte>(program.constants())
                                           : (*files)[mapped++].bytes());
  }
  weights.files_ = std::move(files);
  std::map<ByteRange, const std::byte*> copied;
  const std::set<ValueId> scales = KeptScales(program);
  for (const Value& v : program.values()) {
    const ValueId id(static_cast<int32_t>(weights.data_.size()));
    weights.data_.push_back(nullptr);
    if (!InFile(v)) continue;
    const std::span<const std::byte> range = bytes[static_cast<size_t>(v.weight.file)].subspan(
        static_cast<size_t>(v.weight.offset), static_cast<size_t>(v.SpanBytes()));
    if (!NeedsCopy(program, v, scales.contains(id))) {
      weights.data_.back() = range.data();
      continue;
    }
    const std::byte*& copy = copied[StoredRange(program, id)];
    if (copy == nullptr) copy = AlignedCopy(range, ElementBytes(v.dtype), &weights.copies_);
    weights.data_.back() = copy;
  }
  return weights;
}

void Weights::DropPages() const {
  for (const MappedFile& file : *files_) file.DropPages();
}

}  // namespace pagemill::program
