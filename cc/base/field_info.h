// File: cc/base/field_info.h
// A struct that crosses a boundary lists its fields once, in a static function Visit(); codecs,
// bindings, the C ABI and metrics are visitors of that list, so none of them names a field.
//
//   struct Limits {
//     int32_t num_rows = 8;
//     bool strict = false;
//
//     template <typename Visitor>
//     static void Visit(Visitor&& visit) {
//       visit("num_rows", &Limits::num_rows, FieldInfo{.help = "rows of one step"});
//       visit("strict", &Limits::strict, FieldInfo{.help = "refuse what does not fit"});
//     }
//   };
//
//   Limits::Visit([&](const char* name, auto member, const FieldInfo& info) {
//     std::cout << name << " = " << limits.*member << "\n";
//   });
//
// A visitor is called with the field's name, a pointer to the member, and a FieldInfo. A new field
// goes to the end of the list, because encodings without names go by its order.
#ifndef PAGEMILL_CC_BASE_FIELD_INFO_H_
#define PAGEMILL_CC_BASE_FIELD_INFO_H_

#include <limits>

namespace pagemill {

enum class FieldKind {
  kValue,      // set by a caller, or reported to it
  kGauge,      // a statistic of this moment
  kCounter,    // a statistic that only grows
  kHistogram,  // a DurationHistogram
  kCounters,   // a list of statistics that only grow
};

// Finite numbers from `low` to `high`, `high` included.
struct FieldRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool includes_low = true;
};

struct FieldInfo {
  const char* help = "";  // meaning and unit, as one phrase without a full stop
  FieldRange range = {};  // of a number
  FieldKind kind = FieldKind::kValue;
  const char* metric = "";  // Prometheus family, without the prefix; "" = not exported
  int c_position = 0;       // in the struct of the C ABI, after struct_size = 0; 0 = not in it
  const char* c_name = "";  // in that struct; "" = the field's own name

  constexpr FieldInfo Between(double low, double high) const {
    FieldInfo info = *this;
    info.range = {.low = low, .high = high};
    return info;
  }
  constexpr FieldInfo AtLeast(double low) const {
    return Between(low, std::numeric_limits<double>::infinity());
  }
  constexpr FieldInfo Above(double low, double high) const {
    FieldInfo info = Between(low, high);
    info.range.includes_low = false;
    return info;
  }
  constexpr FieldInfo InC(int position, const char* name = "") const {
    FieldInfo info = *this;
    info.c_position = position;
    info.c_name = name;
    return info;
  }
};

constexpr FieldInfo Value(const char* help) { return {.help = help}; }
constexpr FieldInfo Gauge(const char* help, const char* metric = "") {
  return {.help = help, .kind = FieldKind::kGauge, .metric = metric};
}
constexpr FieldInfo Counter(const char* help, const char* metric = "") {
  return {.help = help, .kind = FieldKind::kCounter, .metric = metric};
}
constexpr FieldInfo Counters(const char* help) {
  return {.help = help, .kind = FieldKind::kCounters};
}
constexpr FieldInfo Histogram(const char* help, const char* metric) {
  return {.help = help, .kind = FieldKind::kHistogram, .metric = metric};
}

}  // namespace pagemill

#endif  // PAGEMILL_CC_BASE_FIELD_INFO_H_
