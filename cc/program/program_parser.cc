// Program::Parse: reads the text form of docs/program_format.md.
#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <unordered_map>

#include "cc/program/program.h"

namespace pagemill::program {
namespace {

constexpr std::string_view kHeader = "pagemill-program 3";
constexpr size_t kMaxGroups = 64;
constexpr int64_t kMaxTokensOfRow = 4096;
constexpr char kGroupForm[] = "group <name> <kind> [window=<tokens>]";

// Splits at every `separator`; "" gives one empty field.
std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> fields;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find(separator, begin);
    fields.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return fields;
    begin = end + 1;
  }
}

template <typename T>
bool ParseNumber(std::string_view text, T* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

// "2,128"
bool ParsePair(std::string_view text, int64_t* first, int64_t* second) {
  const std::vector<std::string_view> numbers = Split(text, ',');
  return numbers.size() == 2 && ParseNumber(numbers[0], first) && ParseNumber(numbers[1], second);
}

// The values of lower-case hex digits by their characters; others: -1. Constants are megabytes of
// digits, which no branch predicts.
constexpr std::array<int8_t, 256> kHexDigits = [] {
  std::array<int8_t, 256> values = {};
  values.fill(-1);
  for (size_t i = 0; i < 16; ++i) {
    values[static_cast<size_t>("0123456789abcdef"[i])] = static_cast<int8_t>(i);
  }
  return values;
}();

int HexDigit(char c) { return kHexDigits[static_cast<unsigned char>(c)]; }

// The dimension with this name; kNone if unknown.
Dim ParseDim(std::string_view name) {
  for (const ops::DimInfo& info : ops::kDims) {
    if (info.name == name) return info.dim;
  }
  return Dim::kNone;
}

std::string DimNames() {
  std::string names;
  for (const ops::DimInfo& info : ops::kDims) {
    names += (names.empty() ? "" : ", ") + std::string(info.name);
  }
  return names;
}

std::string Quote(std::string_view text) { return "'" + std::string(text) + "'"; }

}  // namespace

// One pass over the lines; every error names the line.
class ProgramParser {
 public:
  StatusOr<Program> Parse(std::string_view text);

 private:
  using Fields = std::vector<std::string_view>;

  Status ParseLine(std::string_view line);
  Status ParseFile(std::string_view line, const Fields& fields);
  Status ParseWeight(const Fields& fields);
  Status ParseRowStride(std::string_view text, Value* weight);
  Status ParseStrides(std::string_view row, std::string_view column, Value* weight);
  Status ParseQuantized(const Fields& fields);
  Status ParseStack(const Fields& fields);
  Status ParseGroup(const Fields& fields);
  Status ParseCache(const Fields& fields);
  Status ParseCacheDims(std::string_view text, CacheSpec* cache);
  Status ParseAdapter(const Fields& fields);
  Status ParseInput(const Fields& fields);
  Status ParseActivation(const Fields& fields);
  Status ParseOp(const Fields& fields);
  Status ParseAttributes(const Fields& fields, size_t first, Op* op);
  Status ParseOutput(const Fields& fields);
  Status ParseConstants(const Fields& fields, std::string_view* rest);

  Status AddValue(std::string_view name, Value value);
  Status ParseTypeAndShape(std::string_view dtype, std::string_view shape, Value* value);
  Status ParseOperands(std::string_view list, std::vector<ValueId>* ids);
  Status ExpectFields(const Fields& fields, size_t count, std::string_view form);
  Status Error(const std::string& message) const {
    return InvalidArgument(LinePrefix(line_) + message);
  }

  Program program_;
  std::unordered_map<std::string_view, ValueId> ids_;  // keys point into the text
  int32_t line_ = 0;
  bool has_constants_ = false;
};

StatusOr<Program> ProgramParser::Parse(std::string_view text) {
  std::string_view rest = text;
  const auto next_line = [&](std::string_view* line) {
    if (rest.empty()) return false;
    const size_t end = rest.find('\n');
    *line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    ++line_;
    return true;
  };
  std::string_view line;
  if (!next_line(&line) || line != kHeader) {
    line_ = 1;
    if (line.starts_with("pagemill-program ")) {
      return Error("this is program format " + std::string(line.substr(17, 20)) +
                   ", but this version reads format 3; export the model again");
    }
    return Error("expected the header " + Quote(kHeader));
  }
  while (next_line(&line)) {
    if (line.empty() || line[0] == '#') continue;
    if (has_constants_) return Error("nothing may follow the bytes of the constants");
    if (line.starts_with("constants ")) {
      PAGEMILL_RETURN_IF_ERROR(ParseConstants(Split(line, ' '), &rest));
    } else {
      PAGEMILL_RETURN_IF_ERROR(ParseLine(line));
    }
  }
  PAGEMILL_RETURN_IF_ERROR(program_.CheckIntegrity());
  return std::move(program_);
}

Status ProgramParser::ParseLine(std::string_view line) {
  const Fields fields = Split(line, ' ');
  const std::string_view kind = fields[0];
  if (kind == "file") return ParseFile(line, fields);
  if (kind == "weight") return ParseWeight(fields);
  if (kind == "quantized") return ParseQuantized(fields);
  if (kind == "stack") return ParseStack(fields);
  if (kind == "group") return ParseGroup(fields);
  if (kind == "cache") return ParseCache(fields);
  if (kind == "adapter") return ParseAdapter(fields);
  if (kind == "input") return ParseInput(fields);
  if (kind == "value") return ParseActivation(fields);
  if (kind == "op") return ParseOp(fields);
  if (kind == "output") return ParseOutput(fields);
  return Error(
      "unknown kind of line " + Quote(kind) +
      "; known: file, weight, quantized, stack, group, cache, adapter, input, value, op, output, "
      "constants");
}

Status ProgramParser::ExpectFields(const Fields& fields, size_t count, std::string_view form) {
  if (fields.size() == count) return OkStatus();
  return Error("expected " + Quote(form) + ", got " + std::to_string(fields.size()) +
               " fields separated by single spaces");
}

Status ProgramParser::ParseFile(std::string_view line, const Fields& fields) {
  int32_t id = -1;
  if (fields.size() < 3 || !ParseNumber(fields[1], &id))
    return Error("expected 'file <id> <path>'");
  if (id != static_cast<int32_t>(program_.files_.size())) {
    return Error("expected file id " + std::to_string(program_.files_.size()) + ", got " +
                 std::to_string(id));
  }
  const std::string_view path = line.substr(fields[0].size() + fields[1].size() + 2);
  if (path.empty()) return Error("the path of the file is empty");
  for (const std::string& other : program_.files_) {
    if (path == kConstantsPath && other == path) return Error("a second file is '@'");
  }
  program_.files_.emplace_back(path);
  return OkStatus();
}

Status ProgramParser::AddValue(std::string_view name, Value value) {
  if (name.empty() || name == "-" || name.find_first_of(",=") != std::string_view::npos) {
    return Error("a name must not be empty, be '-', or hold ',' or '=': " + Quote(name));
  }
  const ValueId id(static_cast<int32_t>(program_.values_.size()));
  const auto [it, inserted] = ids_.try_emplace(name, id);
  if (!inserted) {
    return Error(Quote(name) + " is defined already, in line " +
                 std::to_string(program_.value(it->second).line));
  }
  value.name = std::string(name);
  value.line = line_;
  program_.values_.push_back(std::move(value));
  return OkStatus();
}

Status ProgramParser::ParseTypeAndShape(std::string_view dtype, std::string_view shape,
                                        Value* value) {
  value->is_act = dtype == "act";
  const std::optional<DType> type = value->is_act ? DType::kF32 : ParseDType(dtype);
  if (!type) return Error("unknown dtype " + Quote(dtype));
  value->dtype = *type;
  const Fields dims = Split(shape, ',');
  if (dims.size() > static_cast<size_t>(TensorView::kMaxRank)) {
    return Error("shape " + Quote(shape) + " has more than 4 dimensions");
  }
  Shape& s = value->shape;
  s.rank = static_cast<int32_t>(dims.size());
  int64_t elements = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i == 0) s.dim = ParseDim(dims[0]);
    if (i == 0 && s.dim != Dim::kNone) continue;
    if (!ParseNumber(dims[i], &s.dims[i]) || s.dims[i] < 1 ||
        s.dims[i] > (int64_t{1} << 40) / elements) {
      return Error("dimension " + Quote(dims[i]) + " of shape " + Quote(shape) +
                   " is not a number from 1 to a total of 2^40 elements" +
                   (i == 0 ? ", nor a dimension of the step (" + DimNames() + ")" : ""));
    }
    elements *= s.dims[i];
  }
  const int64_t block = Info(*type).block_elements;
  if (block > 1 && (s.rank < 2 || s.RowElements() % block != 0)) {
    return Error("shape " + Quote(shape) + " of block format " + std::string(dtype) +
                 " needs two or more dimensions and rows of a multiple of " +
                 std::to_string(block) + " elements");
  }
  return OkStatus();
}

Status ProgramParser::ParseWeight(const Fields& fields) {
  if (fields.size() != 7 && fields.size() != 8) {
    PAGEMILL_RETURN_IF_ERROR(ExpectFields(fields, 6,
                                          "weight <name> <dtype> <shape> <file> <offset> "
                                          "[<row stride> [<column stride>]]"));
  }
  Value value;
  value.kind = ValueKind::kWeight;
  PAGEMILL_RETURN_IF_ERROR(ParseTypeAndShape(fields[2], fields[3], &value));
  if (value.shape.dim != Dim::kNone) return Error("a weight's shape holds numbers only");
  if (!ParseNumber(fields[4], &value.weight.file) ||
      !ParseNumber(fields[5], &value.weight.offset) || value.weight.offset < 0) {
    return Error("file " + Quote(fields[4]) + " and offset " + Quote(fields[5]) +
                 " must be whole numbers >= 0");
  }
  if (fields.size() == 7) PAGEMILL_RETURN_IF_ERROR(ParseRowStride(fields[6], &value));
  if (fields.size() == 8) PAGEMILL_RETURN_IF_ERROR(ParseStrides(fields[6], fields[7], &value));
  return AddValue(fields[1], std::move(value));
}

Status ProgramParser::ParseRowStride(std::string_view text, Value* weight) {
  const int64_t row = RowBytes(weight->dtype, weight->shape.RowElements());
  const int64_t unit = Info(weight->dtype).block_bytes;
  int64_t& stride = weight->weight.row_stride;
  if (!ParseNumber(text, &stride) || stride <= row || stride % unit != 0 ||
      stride > (int64_t{1} << 42) / weight->shape.dims[0]) {
    return Error("row stride " + Quote(text) + " must be a multiple of " + std::to_string(unit) +
                 " above the " + std::to_string(row) + " bytes of a row, and 2^42 bytes in all");
  }
  return OkStatus();
}

Status ProgramParser::ParseStrides(std::string_view row, std::string_view column, Value* weight) {
  const int64_t unit = Info(weight->dtype).block_bytes;
  const auto parse = [&](std::string_view text, int64_t count, int64_t* stride) {
    return ParseNumber(text, stride) && *stride >= unit && *stride % unit == 0 &&
           *stride <= (int64_t{1} << 42) / count;
  };
  if (weight->shape.rank == 2 && Info(weight->dtype).block_elements == 1 &&
      parse(row, weight->shape.dims[0], &weight->weight.row_stride) &&
      parse(column, weight->shape.dims[1], &weight->weight.column_stride)) {
    return OkStatus();
  }
  return Error("strides " + Quote(row) + " and " + Quote(column) +
               " of rows and columns must be multiples of " + std::to_string(unit) +
               " of a matrix without blocks, and 2^42 bytes in all");
}

Status ProgramParser::ParseQuantized(const Fields& fields) {
  constexpr char kForm[] =
      "quantized <name> <dtype> <shape> <layout> <block rows>,<block columns> "
      "<values>,<scales>,<zeros>,<groups>[,<factor>] [at=<row>,<column>] [row_step=<rows>] "
      "[quantized_activations=1]";
  if (fields.size() < 7 || fields.size() > 10)
    PAGEMILL_RETURN_IF_ERROR(ExpectFields(fields, 7, kForm));
  Value value;
  value.kind = ValueKind::kWeight;
  PAGEMILL_RETURN_IF_ERROR(ParseTypeAndShape(fields[2], fields[3], &value));
  if (value.shape.dim != Dim::kNone) return Error("a weight's shape holds numbers only");
  const std::optional<QuantizedLayout> layout = ParseQuantizedLayout(fields[4]);
  if (!layout) {
    std::string known;
    for (std::string_view name : kQuantizedLayoutNames) known += " " + std::string(name);
    return Error("unknown layout " + Quote(fields[4]) + "; known:" + known);
  }
  Quantized& q = value.quantized.emplace();
  q.format.layout = *layout;
  if (!ParsePair(fields[5], &q.format.block_rows, &q.format.block_columns)) {
    return Error("block " + Quote(fields[5]) + " must be two whole numbers");
  }
  std::vector<ValueId> parts;
  PAGEMILL_RETURN_IF_ERROR(ParseOperands(fields[6], &parts));
  if (parts.size() != 4 && parts.size() != 5) {
    return Error("expected the parts '<values>,<scales>,<zeros>,<groups>', and maybe ',<factor>'");
  }
  q.values = parts[0], q.scales = parts[1], q.zeros = parts[2], q.groups = parts[3];
  if (parts.size() == 5) q.factor = parts[4];
  for (size_t i = 7; i < fields.size(); ++i) {
    const size_t equals = fields[i].find('=');
    const std::string_view word = fields[i].substr(0, equals);
    const std::string_view text = equals == word.npos ? "" : fields[i].substr(equals + 1);
    if (word == "at" && ParsePair(text, &q.format.first_row, &q.format.first_column)) continue;
    if (word == "row_step" && ParseNumber(text, &q.format.row_step)) continue;
    if (fields[i] != "quantized_activations=1") return Error("expected " + Quote(kForm));
    q.format.quantized_activations = true;
  }
  return AddValue(fields[1], std::move(value));
}

Status ProgramParser::ParseStack(const Fields& fields) {
  PAGEMILL_RETURN_IF_ERROR(ExpectFields(fields, 5, "stack <name> <dtype> <shape> <parts>"));
  Value value;
  value.kind = ValueKind::kWeight;
  PAGEMILL_RETURN_IF_ERROR(ParseTypeAndShape(fields[2], fields[3], &value));
  if (value.shape.dim != Dim::kNone) return Error("a weight's shape holds numbers only");
  PAGEMILL_RETURN_IF_ERROR(ParseOperands(fields[4], &value.stack));
  return AddValue(fields[1], std::move(value));
}

Status ProgramParser::ParseGroup(const Fields& fields) {
  if (fields.size() != 4) PAGEMILL_RETURN_IF_ERROR(ExpectFields(fields, 3, kGroupForm));
  if (program_.groups_.size() == kMaxGroups) {
    return Error("a program has at most " + std::to_string(kMaxGroups) + " groups");
  }
  KvGroup group = {.name = std::string(fields[1]), .kind = std::string(fields[2])};
  for (const KvGroup& other : program_.groups_) {
    if (other.name == group.name) return Error("a second group is " + Quote(group.name));
  }
  if (fields.size() == 4) {
    if (!fields[3].starts_with("window=") ||
        !ParseNumber(fields[3].substr(7), &group.window_tokens) || group.window_tokens < 1) {
      return Error("expected " + Quote(kGroupForm) + ", with a window of at least 1 token");
    }
  }
  program_.groups_.push_back(std::move(group));
  return OkStatus();
}

Status ProgramParser::ParseCache(const Fields& fields) {
  PAGEMILL_RETURN_IF_ERROR(ExpectFields(fields, 6, "cache <name> <group> <layout> <dtype> <dims>"));
  Value value;
  value.kind = ValueKind::kCache;
  CacheSpec& c = value.cache;
  const auto& groups = program_.groups_;
  const auto group = std::find_if(groups.begin(), groups.end(),
                                  [&](const KvGroup& g) { return g.name == fields[2]; });
  if (group == groups.end()) return Error("group " + Quote(fields[2]) + " is not defined");
  c.group = static_cast<int32_t>(group - groups.begin());
  const std::optional<CacheLayout> layout = ParseCacheLayout(fields[3]);
  if (!layout) return Error("layout " + Quote(fields[3]) + " is not kv, latent or state");
  c.layout = *layout;
  if (fields[4] != "kv") {
    c.dtype = ParseDType(fields[4]);
    if (!c.dtype || Info(*c.dtype).block_elements != 1) {
      return Error("a cache's dtype is kv or one of single elements, got " + Quote(fields[4]));
    }
  }
  PAGEMILL_RETURN_IF_ERROR(ParseCacheDims(fields[5], &c));
  return AddValue(fields[1], std::move(value));
}

Status ProgramParser::ParseCacheDims(std::string_view text, CacheSpec* cache) {
  int64_t elements = 1;
  for (std::string_view field : Split(text, ',')) {
    int64_t dim = 0;
    if (!ParseNumber(field, &dim) || dim < 1 || dim > (int64_t{1} << 32) / elements) {
      return Error("the dimensions of a cache are numbers from 1 to 2^32 elements, got " +
                   Quote(text));
    }
    elements *= dim;
    cache->dims.push_back(dim);
  }
  const size_t rank = cache->dims.size();
  if ((cache->layout == CacheLayout::kKv && rank != 2) ||
      (cache->layout == CacheLayout::kLatent && cache->Bf16Elements() > cache->dims[0]) ||
      rank > 3) {
    return Error(
        "dimensions are <kv_heads>,<head_dim> of kv, <width>[,<tokens of a row>[,<elements in "
        "bf16>]] of latent and up to three of state, got " +
        Quote(text));
  }
  const int64_t tokens = cache->TokensOfRow();
  if (tokens > kMaxTokensOfRow || (tokens & (tokens - 1)) != 0) {
    return Error("the tokens of a row are a power of two of at most " +
                 std::to_string(kMaxTokensOfRow) + ", got " + Quote(text));
  }
  return OkStatus();
}

Status ProgramParser::ParseAdapter(const Fields& fields) {
  PAGEMILL_RETURN_IF_ERROR(ExpectFields(fields, 3, "adapter <name> [<experts>,]<out>,<in>"));
  Value value;
  value.kind = ValueKind::kAdapter;
  PAGEMILL_RETURN_IF_ERROR(ParseTypeAndShape("i8", fields[2], &value));
  const int32_t rank = value.shape.rank;
  if (value.shape.dim != Dim::kNone || rank < 2 || rank > 3) {
    return Error("an adapter has the dimensions [<experts>,]<out>,<in>, got " + Quote(fields[2]));
  }
  return AddValue(fields[1], std::move(value));
}

Status ProgramParser::ParseInput(const Fields& fields) {
  PAGEMILL_RETURN_IF_ERROR(ExpectFields(fields, 4, "input <name> <dtype> <shape>"));
  Value value;
  value.kind = ValueKind::kInput;
  PAGEMILL_RETURN_IF_ERROR(ParseTypeAndShape(fields[2], fields[3], &value));
  std::string known;
  for (const ops::ArrayInfo<ops::StepArrays>& info : ops::kStepArrays) {
    if (info.extra != 0) continue;
    known += (known.empty() ? "" : ", ") + std::string(info.name);
    if (info.name != fields[1]) continue;
    const bool one = info.columns == 1;
    if (value.is_act || value.dtype != DType::kI32 || value.shape.rank != (one ? 1 : 2) ||
        value.shape.dim != info.dim || (!one && value.shape.dims[1] != info.columns)) {
      return Error("input " + Quote(fields[1]) + " must be i32 " +
                   std::string(ops::InfoOf(info.dim).name) +
                   (one ? "" : "," + std::to_string(info.columns)));
    }
    return AddValue(fields[1], std::move(value));
  }
  if (!value.is_act && value.dtype == DType::kI32) {
    return Error("unknown input " + Quote(fields[1]) + " of i32; known: " + known);
  }
  if (Info(value.dtype).block_elements != 1) {
    return Error("an input's elements are single, got " + Quote(fields[2]));
  }
  return AddValue(fields[1], std::move(value));
}

Status ProgramParser::ParseActivation(const Fields& fields) {
  PAGEMILL_RETURN_IF_ERROR(ExpectFields(fields, 4, "value <name> <dtype> <shape>"));
  Value value;
  PAGEMILL_RETURN_IF_ERROR(ParseTypeAndShape(fields[2], fields[3], &value));
  if (Info(value.dtype).block_elements != 1) {
    return Error("a value's elements are single, got " + Quote(fields[2]));
  }
  return AddValue(fields[1], std::move(value));
}

Status ProgramParser::ParseOperands(std::string_view list, std::vector<ValueId>* ids) {
  for (std::string_view name : Split(list, ',')) {
    if (name == "-") {
      ids->push_back(kNoValue);
      continue;
    }
    const auto it = ids_.find(name);
    if (it == ids_.end()) return Error("operand " + Quote(name) + " is not defined");
    ids->push_back(it->second);
  }
  return OkStatus();
}

Status ProgramParser::ParseOp(const Fields& fields) {
  if (fields.size() < 4 || fields[3] != "->") {
    return Error("expected 'op <name> <inputs> -> [outputs] [attribute=number ...]'");
  }
  Op op;
  op.name = std::string(fields[1]);
  op.line = line_;
  PAGEMILL_RETURN_IF_ERROR(ParseOperands(fields[2], &op.inputs));
  const bool has_outputs = fields.size() > 4 && fields[4].find('=') == std::string_view::npos;
  if (has_outputs) {
    PAGEMILL_RETURN_IF_ERROR(ParseOperands(fields[4], &op.outputs));
    for (ValueId id : op.outputs) {
      if (id == kNoValue) return Error("an output must have a name, got '-'");
    }
  }
  PAGEMILL_RETURN_IF_ERROR(ParseAttributes(fields, has_outputs ? 5 : 4, &op));
  program_.ops_.push_back(std::move(op));
  return OkStatus();
}

Status ProgramParser::ParseAttributes(const Fields& fields, size_t first, Op* op) {
  for (size_t i = first; i < fields.size(); ++i) {
    const size_t equals = fields[i].find('=');
    double number = 0;
    if (equals == 0 || equals == std::string_view::npos ||
        !ParseNumber(fields[i].substr(equals + 1), &number)) {
      return Error("attribute " + Quote(fields[i]) + " is not of the form name=number");
    }
    const std::string name(fields[i].substr(0, equals));
    for (const auto& [other, unused] : op->attributes.values()) {
      if (other == name) return Error("attribute " + Quote(name) + " is given twice");
    }
    op->attributes.Set(name, number);
  }
  return OkStatus();
}

Status ProgramParser::ParseOutput(const Fields& fields) {
  PAGEMILL_RETURN_IF_ERROR(ExpectFields(fields, 3, "output <name> <value>"));
  const auto it = ids_.find(fields[2]);
  if (it == ids_.end()) return Error("output " + Quote(fields[2]) + " is not defined");
  program_.outputs_.push_back({std::string(fields[1]), it->second});
  return OkStatus();
}

Status ProgramParser::ParseConstants(const Fields& fields, std::string_view* rest) {
  PAGEMILL_RETURN_IF_ERROR(ExpectFields(fields, 2, "constants <bytes>"));
  size_t bytes = 0;
  if (!ParseNumber(fields[1], &bytes)) return Error("the number of bytes is not a number");
  const size_t end = rest->find('\n');
  const std::string_view hex = rest->substr(0, end);
  ++line_;
  if (hex.size() != 2 * bytes) {
    return Error("expected " + std::to_string(2 * bytes) + " hex digits for " +
                 std::to_string(bytes) + " bytes of constants, got " + std::to_string(hex.size()));
  }
  program_.constants_.resize(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    const int high = HexDigit(hex[2 * i]), low = HexDigit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return Error("constants hold a character that is not a hex digit");
    program_.constants_[i] = static_cast<std::byte>(high * 16 + low);
  }
  rest->remove_prefix(end == std::string_view::npos ? rest->size() : end + 1);
  has_constants_ = true;
  return OkStatus();
}

StatusOr<Program> Program::Parse(std::string_view text) { return ProgramParser().Parse(text); }

}  // namespace pagemill::program
