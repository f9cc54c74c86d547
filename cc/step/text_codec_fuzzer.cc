// Text of any kind is parsed or refused, and what was parsed is written and read again exactly.
#include <cstdint>
#include <string>
#include <string_view>

#include "cc/base/status.h"
#include "cc/step/text_codec.h"

namespace pagemill::step {
namespace {

// The text of a value is one spelling of it: parsing and writing it again changes nothing.
template <typename T>
void CheckRoundTrip(std::string_view text, StatusOr<T> (*parse)(std::string_view)) {
  const StatusOr<T> value = parse(text);
  if (!value.ok()) {
    PAGEMILL_CHECK(value.status().code() == StatusCode::kDataLoss);
    return;
  }
  const std::string written = ToText(*value);
  const StatusOr<T> again = parse(written);
  PAGEMILL_CHECK(again.ok());
  PAGEMILL_CHECK(ToText(*again) == written);
}

}  // namespace
}  // namespace pagemill::step

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  pagemill::step::CheckRoundTrip(text, pagemill::step::ParseRequest);
  pagemill::step::CheckRoundTrip(text, pagemill::step::ParseStepResult);
  return 0;
}
