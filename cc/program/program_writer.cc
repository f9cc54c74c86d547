// Program::ToText: writes the canonical text of docs/program_format.md.
#include <charconv>
#include <span>
#include <string>

#include "cc/program/program.h"

namespace pagemill::program {
namespace {

std::string FormatDouble(double value) {
  char buffer[40];  // the shortest text of a double has at most 24 characters
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
}

std::string TypeAndShape(const Value& v) {
  return std::string(v.is_act ? "act" : Info(v.dtype).name) + " " + v.shape.ToString();
}

std::string Operands(const Program& program, std::span<const ValueId> ids) {
  std::string text;
  for (ValueId id : ids) {
    if (!text.empty()) text += ',';
    text += id == kNoValue ? "-" : program.value(id).name;
  }
  return text;
}

std::string QuantizedLine(const Program& program, const Value& v) {
  const QuantizedFormat& f = v.quantized->format;
  std::string text = "quantized " + v.name + " " + TypeAndShape(v) + " ";
  text.append(NameOf(f.layout)).append(" ").append(std::to_string(f.block_rows));
  text += "," + std::to_string(f.block_columns) + " ";
  text += Operands(program, v.quantized->listed_parts());
  if (f.first_row != 0 || f.first_column != 0) {
    text += " at=" + std::to_string(f.first_row) + "," + std::to_string(f.first_column);
  }
  if (f.row_step != 0) text += " row_step=" + std::to_string(f.row_step);
  return text + (f.quantized_activations ? " quantized_activations=1\n" : "\n");
}

std::string GroupLine(const KvGroup& group) {
  std::string text = "group " + group.name + " " + group.kind;
  if (group.window_tokens > 0) text += " window=" + std::to_string(group.window_tokens);
  return text + "\n";
}

std::string CacheLine(const Program& program, const Value& v) {
  const CacheSpec& c = v.cache;
  std::string text = "cache " + v.name + " " + program.groups()[static_cast<size_t>(c.group)].name;
  text.append(" ").append(NameOf(c.layout)).append(" ");
  text += c.dtype ? Info(*c.dtype).name : "kv";
  for (size_t i = 0; i < c.dims.size(); ++i) {
    text += (i == 0 ? " " : ",") + std::to_string(c.dims[i]);
  }
  return text + "\n";
}

std::string ValueLine(const Program& program, const Value& v) {
  if (v.quantized) return QuantizedLine(program, v);
  if (!v.stack.empty()) {
    return "stack " + v.name + " " + TypeAndShape(v) + " " + Operands(program, v.stack) + "\n";
  }
  switch (v.kind) {
    case ValueKind::kWeight:
      return "weight " + v.name + " " + TypeAndShape(v) + " " + std::to_string(v.weight.file) +
             " " + std::to_string(v.weight.offset) +
             (v.weight.row_stride > 0 ? " " + std::to_string(v.weight.row_stride) : "") +
             (v.weight.column_stride > 0 ? " " + std::to_string(v.weight.column_stride) : "") +
             "\n";
    case ValueKind::kCache:
      return CacheLine(program, v);
    case ValueKind::kAdapter:
      return "adapter " + v.name + " " + v.shape.ToString() + "\n";
    case ValueKind::kInput:
      return "input " + v.name + " " + TypeAndShape(v) + "\n";
    case ValueKind::kActivation:
      break;
  }
  return "value " + v.name + " " + TypeAndShape(v) + "\n";
}

std::string OpLine(const Program& program, const Op& op) {
  std::string text = "op " + op.name + " " + Operands(program, op.inputs) + " ->";
  if (!op.outputs.empty()) text += " " + Operands(program, op.outputs);
  for (const auto& [name, value] : op.attributes.values()) {
    text += " " + name + "=" + FormatDouble(value);
  }
  return text + "\n";
}

}  // namespace

std::string Program::ToText() const {
  std::string text = "pagemill-program 3\n";
  for (size_t i = 0; i < files_.size(); ++i) {
    text += "file " + std::to_string(i) + " " + files_[i] + "\n";
  }
  for (const KvGroup& group : groups_) text += GroupLine(group);
  for (const Value& v : values_) text += ValueLine(*this, v);
  for (const Op& op : ops_) text += OpLine(*this, op);
  for (const Output& output : outputs_) {
    text += "output " + output.name + " " + value(output.value).name + "\n";
  }
  if (!constants_.empty()) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += "constants " + std::to_string(constants_.size()) + "\n";
    for (std::byte b : constants_) {
      text += kDigits[static_cast<int>(b) >> 4];
      text += kDigits[static_cast<int>(b) & 15];
    }
    text += '\n';
  }
  return text;
}

}  // namespace pagemill::program
