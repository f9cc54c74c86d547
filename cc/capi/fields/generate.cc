// Generates the parts of the C ABI that derive from the engine's lists of fields
// (cc/base/field_info.h):
//
//   generate header pagemill.h.in   the header; the struct named in a line `@struct@` goes there
//   generate conversion             convert_fields.cc: values of these structs, to and from C
//
// A field is in the C ABI if its FieldInfo gives its position. abi_test rejects a struct that ends
// in padding: a field of 4 bytes must come with a second one.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cc/base/field_info.h"
#include "cc/engine/engine_stats.h"
#include "cc/step/sampling_params.h"

namespace pagemill::capi {
namespace {

struct CField {
  int position = 0;
  std::string name;     // in C
  std::string cc_name;  // in the engine's struct
  std::string type;     // in C; of the elements of an array
  bool is_array = false;
  std::string help;
};

[[noreturn]] void Fail(const std::string& sentence) {
  std::fprintf(stderr, "%s\n", sentence.c_str());
  std::exit(1);
}

template <typename Member>
std::string CType(bool is_statistic) {
  if (std::is_same_v<Member, double>) return "double";
  if (std::is_same_v<Member, float>) return "float";
  return is_statistic || std::is_same_v<Member, uint64_t> ? "uint64_t" : "int32_t";
}

std::string Help(const FieldInfo& info) {
  std::string help = info.help;
  const FieldRange& range = info.range;
  char text[64] = "";
  if (range.high < 1e30) {
    std::snprintf(text, sizeof(text), "%s%g, %g]: ", range.includes_low ? "[" : "(", range.low,
                  range.high);
  } else if (range.low > -1e30) {
    std::snprintf(text, sizeof(text), "%s %g: ", range.includes_low ? ">=" : ">", range.low);
  }
  if (info.kind == FieldKind::kGauge) help = "gauge: " + help;
  return text + help;
}

// The fields of `T` that are in the C ABI, by position.
template <typename T>
std::vector<CField> Fields() {
  std::vector<CField> fields;
  T::Visit([&](const char* name, auto member, const FieldInfo& info) {
    if (info.c_position == 0) return;
    using Member = std::remove_cvref_t<decltype(std::declval<T>().*member)>;
    CField field;
    field.position = info.c_position;
    field.name = *info.c_name != '\0' ? info.c_name : name;
    field.cc_name = name;
    field.help = Help(info);
    if constexpr (std::is_same_v<Member, std::vector<int32_t>>) {
      field.type = "int32_t";
      field.is_array = true;
    } else if constexpr (std::is_same_v<Member, std::vector<std::pair<int32_t, float>>>) {
      field.type = "pagemill_token_value";
      field.is_array = true;
    } else if constexpr (std::is_arithmetic_v<Member>) {
      field.type = CType<Member>(info.kind != FieldKind::kValue);
    } else {
      Fail("the type of " + field.cc_name + " has no form in the C ABI yet");
    }
    fields.push_back(std::move(field));
  });
  std::sort(fields.begin(), fields.end(),
            [](const CField& a, const CField& b) { return a.position < b.position; });
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].position == static_cast<int>(i) + 1) continue;
    Fail("position " + std::to_string(i + 1) +
         " of the C ABI is taken twice or by no field, near " + fields[i].cc_name);
  }
  return fields;
}

void PrintStruct(const char* name, const char* comment, const std::vector<CField>& fields) {
  std::printf("/* %s */\ntypedef struct %s {\n  size_t struct_size;\n", comment, name);
  for (const CField& field : fields) {
    std::printf("  /* %s */\n", field.help.c_str());
    if (field.is_array) {
      std::printf("  const %s* %s;\n  size_t num_%s;\n", field.type.c_str(), field.name.c_str(),
                  field.name.c_str());
    } else {
      std::printf("  %s %s;\n", field.type.c_str(), field.name.c_str());
    }
  }
  std::printf("} %s;\n", name);
}

void PrintHeader(const std::string& path, const std::vector<CField>& sampling,
                 const std::vector<CField>& stats) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line == "@pagemill_sampling_params@") {
      PrintStruct(
          "pagemill_sampling_params",
          "How a request's tokens are chosen. Arrays are copied by submit; end-of-sequence\n"
          " * tokens belong to stop_token_ids.",
          sampling);
    } else if (line == "@pagemill_stats@") {
      PrintStruct("pagemill_stats",
                  "Gauges are of this moment, counters only grow, durations are in seconds.",
                  stats);
    } else {
      std::printf("%s\n", line.c_str());
    }
  }
}

void PrintConversion(const std::vector<CField>& sampling, const std::vector<CField>& stats) {
  std::printf(
      "#include \"cc/capi/convert.h\"\n\nnamespace pagemill::capi {\n\n"
      "StatusOr<step::SamplingParams> ToSamplingParams(const pagemill_sampling_params& from,\n"
      "                                                size_t max_entries) {\n"
      "  step::SamplingParams to;\n");
  for (const CField& f : sampling) {
    const char *cc = f.cc_name.c_str(), *c = f.name.c_str();
    if (f.is_array) {
      std::printf(
          "  PAGEMILL_ASSIGN_OR_RETURN(to.%s, CopyArray(\"%s\", from.%s, from.num_%s, "
          "max_entries));\n",
          cc, c, c, c);
    } else {
      std::printf("  to.%s = static_cast<decltype(to.%s)>(from.%s);\n", cc, cc, c);
    }
  }
  std::printf(
      "  return to;\n}\n\npagemill_sampling_params FromSamplingParams(\n"
      "    const step::SamplingParams& from, std::vector<pagemill_token_value>* values) {\n"
      "  pagemill_sampling_params to = {};\n  to.struct_size = sizeof(to);\n");
  for (const CField& f : sampling) {
    const char *cc = f.cc_name.c_str(), *c = f.name.c_str();
    if (f.type == "pagemill_token_value") {
      std::printf("  AssignValues(from.%s, values);\n  to.%s = values->data();\n", cc, c);
      std::printf("  to.num_%s = values->size();\n", c);
    } else if (f.is_array) {
      std::printf("  to.%s = from.%s.data();\n  to.num_%s = from.%s.size();\n", c, cc, c, cc);
    } else {
      std::printf("  to.%s = from.%s;\n", c, cc);
    }
  }
  std::printf(
      "  return to;\n}\n\n"
      "pagemill_stats FromStats(const engine::EngineStats& from) {\n"
      "  pagemill_stats to = {};\n  to.struct_size = sizeof(to);\n");
  for (const CField& f : stats) {
    std::printf("  to.%s = static_cast<%s>(from.%s);\n", f.name.c_str(), f.type.c_str(),
                f.cc_name.c_str());
  }
  std::printf("  return to;\n}\n\n}  // namespace pagemill::capi\n");
}

}  // namespace
}  // namespace pagemill::capi

int main(int argc, char** argv) {
  using pagemill::capi::Fields;
  const auto sampling = Fields<pagemill::step::SamplingParams>();
  const auto stats = Fields<pagemill::engine::EngineStats>();
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "header" && argc == 3) {
    pagemill::capi::PrintHeader(argv[2], sampling, stats);
  } else if (what == "conversion") {
    pagemill::capi::PrintConversion(sampling, stats);
  } else {
    std::fprintf(stderr, "usage: generate header TEMPLATE | generate conversion\n");
    return 2;
  }
  return 0;
}
